"""Containers, shells and gateways for the tests of the engine client."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import uvloop

from engine.engine import Engine
from engine.gateway import EngineGateway, signer
from engine.shell import Shell
from engine.tests.gateways import HOST, KEYS, running_gateway, session_container
from tests.containers import ENGINE_URL, Container, lent_container
from tests.shell_image import ensure_shell_image
from tests.tiny_image import ensure_tiny_image


@pytest.fixture
def bare() -> Iterator[Container]:
    """A container with busybox's sh alone."""
    with lent_container(ensure_tiny_image()) as container:
        yield container


@pytest.fixture
def full() -> Iterator[Container]:
    """A container with bash and tmux."""
    with lent_container(ensure_shell_image()) as container:
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
async def passed() -> AsyncIterator[tuple[str, EngineGateway]]:
    """The gateway of a test."""
    async with running_gateway() as running:
        yield running


@pytest_asyncio.fixture
async def far(passed: tuple[str, EngineGateway]) -> Engine:
    """The engine behind the gateway."""
    return Engine(passed[0], signer(KEYS, HOST))
