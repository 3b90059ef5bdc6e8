"""Batch sessions: the command is the container's main work, and its end is the session's."""

import pytest

from hostworker.containers import runner
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, tiny_world
from hostworker.runtime_protocol import ContainerPhase, ContainerState
from hostworker.tests.starting import start_session
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Result, Status
from sessions.models import Session
from sessions.requeueing import requests
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_host, make_user
from tests.wait import until

world = pytest.fixture(tiny_world)


def ended(runtime: DockerRuntime, session: str) -> ContainerState:
    """Return the state of the container once it has exited."""

    def exits() -> list[ContainerState]:
        mine = [state for state in runtime.containers() if state.session == session]
        return [state for state in mine if state.phase is ContainerPhase.EXITED]

    return until(exits)[0]


def launched(runtime: MemoryRuntime) -> Session:
    """Return a batch session that came to run the usual way."""
    host = make_host()
    (session,) = services.submit(make_user(), make_launch_request(host, command="python train.py", name="train"))
    assert (session.kind, session.result) == (Kind.BATCH, "")
    assert run_pass() == 1
    start_session(runtime, session.pk, 1)
    spec = runtime.spec(session.pk, 1)
    assert spec
    assert spec.command == "python train.py"
    return session


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("exit_code", "out_of_memory", "status", "reason", "result"),
    [
        (0, False, Status.TERMINATED, Reason.CONTAINER_EXITED, Result.SUCCESS),
        (3, False, Status.ERROR, Reason.CONTAINER_EXITED, Result.FAILURE),
        (137, True, Status.ERROR, Reason.OUT_OF_MEMORY, Result.FAILURE),
    ],
)
def test_session_ends_with_its_command(
    exit_code: int, out_of_memory: bool, status: Status, reason: Reason, result: Result
) -> None:
    runtime = MemoryRuntime("batch", "here", f"memory://{exit_code}")
    session = launched(runtime)
    runtime.write_log(session.pk, 1, "epoch 1")
    runtime.end(session.pk, 1, exit_code, out_of_memory)
    (state,) = runtime.containers()
    runner.note_exit(runtime, state)
    session.refresh_from_db()
    assert (session.status, session.reason, session.result) == (status, reason, result)
    assert session.exit_code == exit_code
    assert "epoch 1" in session.log_tail
    assert runtime.containers() == []


@pytest.mark.django_db
def test_the_output_of_the_attempt_before_is_kept() -> None:
    runtime = MemoryRuntime("batch", "here", "memory://again")
    session = launched(runtime)
    runtime.write_log(session.pk, 1, "epoch 1")
    requests.requeue(session, actor=make_user(is_superuser=True))
    runner.stop(runtime, session.pk, 1)
    session.refresh_from_db()
    assert (session.status, session.log_tail) == (Status.PENDING, "")
    assert "epoch 1" in session.previous_output
    run_pass()
    start_session(runtime, session.pk, 2)
    runtime.write_log(session.pk, 2, "epoch 2")
    runtime.end(session.pk, 2, 0)
    (state,) = runtime.containers()
    runner.note_exit(runtime, state)
    session.refresh_from_db()
    assert "epoch 1" in session.previous_output
    assert "epoch 2" in session.log_tail


@pytest.mark.django_db
def test_what_is_stopped_has_failed_whatever_its_exit_code() -> None:
    runtime = MemoryRuntime("batch", "here", "memory://stopped")
    session = launched(runtime)
    session.refresh_from_db()
    services.end(session, Reason.TIME_LIMIT, "It reached its time limit.")
    runner.stop(runtime, session.pk, 1)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATED, Reason.TIME_LIMIT)
    assert session.result == Result.FAILURE


@pytest.mark.docker
@pytest.mark.parametrize(
    ("command", "exit_code", "output"),
    [
        ("echo one; echo two >&2", 0, "one two"),
        ("echo $GREETING 'a\"b\"'; exit 3", 3, 'hello a"b"'),
        ("nonsense-command", 127, "not found"),
    ],
)
def test_real_command_ends_with_exit_code_and_output(
    world: DockerWorld, command: str, exit_code: int, output: str
) -> None:
    runtime = world.runtime()
    spec = make_spec(world.image, command=command, environment={"GREETING": "hello"})
    runtime.create(spec)
    runtime.start(spec.session, 1)
    state = ended(runtime, spec.session)
    assert (state.exit_code, state.out_of_memory) == (exit_code, False)
    written = runtime.logs(spec.session, 1, 10).split()  # the two streams may overtake each other
    assert set(output.split()) <= set(written)


@pytest.mark.docker
def test_stopped_real_command_does_not_end_with_success(world: DockerWorld) -> None:
    runtime = world.runtime()
    spec = make_spec(world.image, command="trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.1; done")
    runtime.create(spec)
    runtime.start(spec.session, 1)
    until(lambda: "begun" in runtime.logs(spec.session, 1, 10))
    runtime.stop(spec.session, 1, 60)  # seconds: longer than it takes on a busy machine
    assert ended(runtime, spec.session).exit_code == 143
    assert "told" in runtime.logs(spec.session, 1, 10)
