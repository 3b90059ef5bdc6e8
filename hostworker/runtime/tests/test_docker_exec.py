"""Programs that the platform runs in containers of the Docker Engine: what the contract cannot ask of a fake."""

import pytest

from hostworker.runtime.docker import exec as docker_exec
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, tiny_world
from hostworker.runtime_protocol import ContainerSpec, ExecutionError
from tests.wait import until

pytestmark = pytest.mark.docker


world = pytest.fixture(tiny_world)


@pytest.fixture
def running(world: DockerWorld) -> ContainerSpec:
    spec = make_spec(world.image)
    world.runtime().create(spec)
    world.runtime().start(spec.session, spec.attempt)
    return spec


def run(world: DockerWorld, spec: ContainerSpec, script: str, **environment: str) -> str:
    executed = world.runtime().execute(spec.session, spec.attempt, ["sh", "-c", script], environment)
    assert executed.exit_code == 0
    return executed.output


def test_the_environment_reaches_the_program_and_no_command_line(world: DockerWorld, running: ContainerSpec) -> None:
    script = "(sleep 100; :) >/dev/null 2>&1 & echo $SECRET; cat /proc/[0-9]*/cmdline"
    output = run(world, running, script, SECRET="swordfish")
    assert output.startswith("swordfish\n")
    assert output.count("swordfish") == 1


def test_what_it_leaves_in_the_background_outlives_it(world: DockerWorld, running: ContainerSpec) -> None:
    run(world, running, "(sleep 0.5; echo later >/tmp/later) >/dev/null 2>&1 &")
    until(lambda: run(world, running, "cat /tmp/later 2>/dev/null; true") == "later\n")


def test_a_program_that_does_not_end_is_given_up(
    world: DockerWorld, running: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_exec, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(ExecutionError, match="did not end in time"):
        run(world, running, "sleep 100")
    with pytest.raises(ExecutionError, match="did not end in time"):
        run(world, running, "while :; do echo drip; sleep 0.1; done")


def test_no_more_is_read_than_wanted(
    world: DockerWorld, running: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_exec, "OUTPUT_LIMIT", 1000)
    program = ["sh", "-c", "head -c 20000 /dev/zero"]
    executed = world.runtime().execute(running.session, running.attempt, program, {})
    assert 900 < len(executed.output) < 20000  # how a program ends that nobody listens to is not ours to say
