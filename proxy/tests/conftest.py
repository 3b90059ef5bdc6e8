"""The running app proxy for its tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from proxy.tests.servers import SERVICE_WAYS, WAYS, RunningProxy, running


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The event loop of production."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(params=(*WAYS, *SERVICE_WAYS))
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """The app proxy with an app behind it, in each of WAYS and SERVICE_WAYS."""
    async with running(request.param) as running_:
        yield running_


@pytest_asyncio.fixture(params=WAYS)
async def app_proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """The app proxy with an app behind it, in each of WAYS: for what services do in another way."""
    async with running(request.param) as running_:
        yield running_


@pytest_asyncio.fixture(params=("direct", "service"))
async def public(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    """The app proxy with a public app or service behind it."""
    async with running(request.param, is_public=True) as running_:
        yield running_
