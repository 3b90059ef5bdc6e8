"""The addresses of containers: what the runtime promises of them, for each implementation alike."""

from ipaddress import ip_address

import pytest

from hostworker.runtime.tests.runtime_worlds import (
    World,
    launch,
    make_spec,
    new_session,
)
from hostworker.runtime_protocol import ContainerPhase, ContainerSpec, Runtime
from tests.wait import until

GRACE = 60  # seconds: more than a container takes to end well on a busy machine


@pytest.fixture
def running(world: World, runtime: Runtime) -> ContainerSpec:
    return launch(runtime, make_spec(world.image))


def phase_of(runtime: Runtime, spec: ContainerSpec) -> ContainerPhase:
    (state,) = (each for each in runtime.containers() if each.session == spec.session)
    return state.phase


def test_running_container_has_a_unique_address(world: World, runtime: Runtime) -> None:
    first, second = (launch(runtime, make_spec(world.image)) for _ in range(2))
    seen = [[each.address(spec.session, 1) for spec in (first, second)] for each in (runtime, runtime, world.runtime())]
    assert seen[0] == seen[1] == seen[2]
    assert len({str(ip_address(str(address))) for address in seen[0]}) == 2


def test_an_address_is_announced_before_anything_of_the_session_runs(world: World, runtime: Runtime) -> None:
    spec, seen = make_spec(world.image), list[tuple[str, ContainerPhase]]()
    runtime.create(spec)
    runtime.start(spec.session, 1, lambda address: seen.append((address, phase_of(runtime, spec))))
    assert seen == [(runtime.address(spec.session, 1), ContainerPhase.CREATED)]


def test_ended_container_keeps_its_address_until_removal(
    world: World, runtime: Runtime, running: ContainerSpec
) -> None:
    """Its routes may still stand, and would lead to another session's apps."""
    address = runtime.address(running.session, 1)
    world.end(running.session, 1, 0)
    until(lambda: phase_of(runtime, running) is ContainerPhase.EXITED)
    for _ in range(3):
        following = launch(runtime, make_spec(world.image))
        assert runtime.address(following.session, 1) != address


def test_what_does_not_run_has_no_address(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    created = make_spec(world.image)
    runtime.create(created)
    runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
    assert [runtime.address(*key) for key in ((created.session, 1), (running.session, 1), (new_session(), 1))] == [
        None,
        None,
        None,
    ]
