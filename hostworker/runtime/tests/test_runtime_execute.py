"""Running programs in containers: what the runtime promises of it, for each implementation alike."""

import pytest

from hostworker.runtime.tests.runtime_worlds import World, launch, make_spec
from hostworker.runtime_protocol import ContainerSpec, ExecResult, ExecutionError, Runtime


@pytest.fixture
def running(world: World, runtime: Runtime) -> ContainerSpec:
    return launch(runtime, make_spec(world.image))


def test_execute_returns_exit_code_and_whole_output(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    output = "one\ntwö\n" * 1000
    command = world.set_exec_handler(3, output)
    assert runtime.execute(running.session, running.attempt, command, {}) == ExecResult(exit_code=3, output=output)


def test_no_program_is_run_where_no_container_runs(world: World, runtime: Runtime) -> None:
    spec, command = make_spec(world.image), world.set_exec_handler(0, "")

    def is_refused() -> None:
        with pytest.raises(ExecutionError, match="not running"):
            runtime.execute(spec.session, spec.attempt, command, {})

    is_refused()
    runtime.create(spec)
    is_refused()
    runtime.start(spec.session, spec.attempt)
    runtime.stop(spec.session, spec.attempt, 5)
    is_refused()
    world.lose_container(spec.session, spec.attempt)
    is_refused()


def test_no_program_is_run_in_another_hosts_container(world: World, running: ContainerSpec) -> None:
    with pytest.raises(ExecutionError):
        world.runtime(host="elsewhere").execute(running.session, running.attempt, world.set_exec_handler(0, ""), {})
