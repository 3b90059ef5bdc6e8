"""Running servers for the tests of the proxy."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from proxy.tests.servers import SERVERS, RunningProxy, running


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The event loop of production."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(params=SERVERS)
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """A running server with an app behind it."""
    async with running(request.param) as running_:
        yield running_


@pytest_asyncio.fixture(params=["fast", "asgi"])
async def public(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """A running server with a public app behind it."""
    async with running(request.param, is_public=True) as running_:
        yield running_
