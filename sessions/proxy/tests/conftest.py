"""Containers, shells and carriers for the tests of the proxy."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import uvloop

from sessions.proxy.engine import Engine
from sessions.proxy.passage import Passage, signer
from sessions.proxy.shell import Shell
from sessions.proxy.tests.carriers import CARRIERS, Carrier, running
from sessions.proxy.tests.passages import HOST, KEYS, gateway, session_container
from tests.containers import ENGINE_URL, Container, running_container
from tests.shell_image import ensure_shell_image
from tests.tiny_image import ensure_tiny_image


@pytest.fixture
def bare() -> Iterator[Container]:
    """A container with busybox's sh alone."""
    with running_container(ensure_tiny_image()) as container:
        yield container


@pytest.fixture
def full() -> Iterator[Container]:
    """A container with bash and tmux."""
    with running_container(ensure_shell_image()) as container:
        yield container


@pytest_asyncio.fixture
async def shell(bare: Container) -> AsyncIterator[Shell]:
    """A shell in the bare container."""
    started = await Shell.start(Engine(ENGINE_URL), bare.id)
    yield started
    await started.hang_up()


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The event loop of production."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(params=CARRIERS)
async def carrier(request: pytest.FixtureRequest) -> AsyncIterator[Carrier]:
    """A running carrier with an app behind it."""
    async with running(request.param) as running_:
        yield running_


@pytest_asyncio.fixture(params=["splice", "asgi"])
async def public(request: pytest.FixtureRequest) -> AsyncIterator[Carrier]:
    """A running carrier with a public app behind it."""
    async with running(request.param, is_public=True) as running_:
        yield running_


@pytest.fixture(scope="module")
def shared() -> Iterator[Container]:
    """A container for tests that leave nothing in it."""
    with session_container() as running:
        yield running


@pytest.fixture
def container() -> Iterator[Container]:
    """A container of a test's own."""
    with session_container() as running:
        yield running


@pytest_asyncio.fixture
async def passed() -> AsyncIterator[tuple[str, Passage]]:
    """The gateway of a test."""
    async with gateway() as running:
        yield running


@pytest_asyncio.fixture
async def far(passed: tuple[str, Passage]) -> Engine:
    """The engine behind the gateway."""
    return Engine(passed[0], signer(KEYS, HOST))
