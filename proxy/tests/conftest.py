"""The running app proxy for its tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from proxy.tests.servers import WAYS, RunningProxy, running


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The event loop of production."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(params=WAYS)
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """The app proxy with an app behind it, in each of WAYS."""
    async with running(request.param) as running_:
        yield running_


@pytest_asyncio.fixture
async def public() -> AsyncIterator[RunningProxy]:
    """The app proxy with a public app behind it."""
    async with running("direct", is_public=True) as running_:
        yield running_
