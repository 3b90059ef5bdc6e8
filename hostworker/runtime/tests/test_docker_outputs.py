"""A session that floods its output is slowed down by the engine's own means; its end, logs and others go on as ever."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Final, cast

import pytest

from engine.containers import container_name
from hostworker.runtime.docker import outputs as docker_outputs
from hostworker.runtime.docker.outputs import MAX_LINES_PER_SECOND, TAIL_LINES, DockerOutputs, cost_of, pace_of
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, runtime_of, tiny_world
from hostworker.runtime_protocol import ContainerSpec
from tests.wait import until

NOW: Final = datetime(2026, 5, 1, 12, 0, 10, tzinfo=UTC)


def log(lines: int, seconds: float, text: str = "y", end: datetime = NOW) -> bytes:
    """Return the tail of a log of this many lines that were written within this time."""
    times = [end - timedelta(seconds=seconds * (1 - number / lines)) for number in range(lines)]
    return b"".join(f"{time.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {text}\n".encode() for time in times)


@pytest.mark.parametrize(
    ("tail", "is_flood"),
    [
        (b"", False),
        (log(TAIL_LINES, 0.001), True),
        (log(TAIL_LINES, 1), False),
        (log(TAIL_LINES, 0.001, end=NOW - timedelta(minutes=1)), False),  # long over
        (log(TAIL_LINES - 1, 0.001), False),  # all that it ever wrote
        (log(TAIL_LINES, 0.1, text="x" * 1000), True),  # few lines, but long ones
        (log(1, 0.001, text="x" * 16_000_000), True),  # no lines at all
        (b"no time\n" * TAIL_LINES, False),
    ],
)
def test_the_last_lines_say_how_fast_an_output_comes(tail: bytes, is_flood: bool) -> None:
    assert (pace_of(tail, NOW) > MAX_LINES_PER_SECOND) is is_flood


def test_long_lines_cost_by_their_bytes() -> None:
    assert cost_of(b"y\n") == pytest.approx(1.01)
    assert cost_of(b"x" * 5000) == pytest.approx(25)


world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)


def launched(runtime: DockerRuntime, world: DockerWorld, command: str = "") -> ContainerSpec:
    spec = make_spec(world.image, command=command)
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    return spec


def flooding(runtime: DockerRuntime, world: DockerWorld) -> tuple[str, int]:
    """Return the key of a container that floods, as `flooding` finds it."""
    spec = launched(runtime, world, "yes")
    key = (spec.session, spec.attempt)
    until(lambda: runtime.outputs.flooding() == {key})
    return key


@pytest.mark.docker
def test_a_flood_is_found_slowed_and_named(world: DockerWorld, runtime: DockerRuntime) -> None:
    quiet = launched(runtime, world)
    key = flooding(runtime, world)
    outputs = runtime.outputs
    outputs.slow_down(*key)
    assert outputs.flooding() == set(), "it is not found twice"
    until(lambda: outputs.slowed() == {key})
    world.write_log(quiet.session, quiet.attempt, "still heard")
    until(lambda: "still heard" in runtime.logs(quiet.session, quiet.attempt, 10))
    assert runtime.logs(*key, tail=3) == "y\ny\ny\n"


@pytest.mark.docker
def test_the_engine_copies_no_more_than_is_read(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = flooding(runtime, world)
    monkeypatch.setattr(docker_outputs, "MAX_LINES_PER_SECOND", 1)  # once its buffers are full, the engine waits

    def last_line() -> bytes:
        line: bytes = runtime._client().logs(container_name(*key), tail=1, timestamps=True)
        return line

    def copies() -> bool:
        before = last_line()
        world.execute(*key, "sleep 0.5")
        return last_line() != before

    assert copies()
    runtime.outputs.slow_down(*key)
    until(lambda: not copies())
    runtime.outputs.release(*key)
    until(copies)


def test_an_output_is_read_no_faster_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves as the reader waits, and in no other way."""
    clock = [0.0]
    read = []

    class Flood:
        @property
        def _sock(self) -> "Flood":
            return self

        def settimeout(self, seconds: float) -> None:
            pass

        def recv(self, size: int) -> bytes:
            read.append(size)
            return b"y\n" * (size // 2)

        def shutdown(self, how: int) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(docker_outputs, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    reader = docker_outputs._SlowReader(Flood(), os.getpid())

    def wait(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 60:
            reader.close()

    monkeypatch.setattr(reader._closed, "wait", wait)
    reader.run()
    assert reader.is_flooded
    assert sum(map(cost_of, (b"y\n" * (size // 2) for size in read))) < 1.2 * MAX_LINES_PER_SECOND * clock[0]


@pytest.mark.docker
@pytest.mark.parametrize("end", ["stop", "remove"])
def test_a_slowed_session_ends_as_any_other(world: DockerWorld, runtime: DockerRuntime, end: str) -> None:
    key = flooding(runtime, world)
    runtime.outputs.slow_down(*key)
    actions: dict[str, Callable[[], None]] = {
        "stop": lambda: runtime.stop(*key, grace_seconds=1),
        "remove": lambda: runtime.remove(*key),
    }
    actions[end]()
    until(lambda: not any(state.phase == "running" for state in runtime.containers()))
    until(lambda: not cast(DockerOutputs, runtime.outputs)._slowed)


@pytest.mark.docker
def test_a_slowed_command_keeps_its_exit_code_and_last_lines(world: DockerWorld, runtime: DockerRuntime) -> None:
    # The engine has ten seconds for what it has not copied as a container ends: up to a megabyte, so of long lines.
    flood = f"yes {'y' * 1000} & until test -e /tmp/over; do sleep 0.1; done; kill $!; wait"
    spec = launched(runtime, world, f"{flood}; echo the end; exit 7")
    key = (spec.session, spec.attempt)
    until(lambda: runtime.outputs.flooding() == {key})
    runtime.outputs.slow_down(*key)
    until(lambda: runtime.outputs.slowed() == {key})
    world.execute(*key, "touch /tmp/over")
    runtime.outputs.release(*key)
    (state,) = until(lambda: [each for each in runtime.containers() if each.phase == "exited"])
    assert state.exit_code == 7
    until(lambda: runtime.logs(*key, tail=1).endswith("the end\n"))


@pytest.mark.docker
def test_an_output_that_grows_quiet_is_let_go(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_outputs, "WINDOW_SECONDS", 0.5)
    spec = launched(runtime, world)
    key = (spec.session, spec.attempt)
    runtime.outputs.slow_down(*key)
    until(lambda: not cast(DockerOutputs, runtime.outputs)._slowed)
    world.write_log(*key, "goes on")
    until(lambda: "goes on" in runtime.logs(*key, 10))
