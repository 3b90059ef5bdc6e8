"""Containers and shells for the tests of the proxy."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sessions.proxy.engine import Engine
from sessions.proxy.shell import Shell
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
