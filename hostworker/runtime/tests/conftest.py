"""The worlds of the runtime contract; a module's tests share an engine, which is emptied after each."""

from collections.abc import Iterator

import pytest

from hostworker.runtime.tests.runtime_worlds import EVERY_WORLD, DockerWorld, MemoryWorld, World, runtime_of
from tests.tiny_image import ensure_tiny_image


@pytest.fixture(scope="module", params=EVERY_WORLD)
def docker_world(request: pytest.FixtureRequest) -> Iterator[DockerWorld | None]:
    """The module's Docker Engine; None where it is the turn of the engine in memory."""
    if request.param == "memory":
        yield None
        return
    made = DockerWorld(ensure_tiny_image(), sandboxes=1 if request.param == "docker with sandboxes" else 0)
    yield made
    made.clean_up()


@pytest.fixture
def world(docker_world: DockerWorld | None) -> Iterator[World]:
    """Each world, with nothing in it."""
    if docker_world is None:
        yield MemoryWorld()
        return
    yield docker_world
    docker_world.empty()


runtime = pytest.fixture(runtime_of)
