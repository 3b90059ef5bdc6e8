"""What the in-memory runtime offers beside the contract: failures to order."""

import threading

import pytest

from hostworker.runtime.base import EngineUnreachable, ImageUnavailable, StartFailed
from hostworker.runtime.memory import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import make_spec, new_session


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime(new_session(), "here")


def test_an_operation_fails_as_often_as_asked_and_then_works(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.fail_next("create", StartFailed("no"), times=2)
    for _ in range(2):
        with pytest.raises(StartFailed):
            runtime.create(spec)
    assert runtime.containers() == []
    assert runtime.create(spec)


def test_a_failure_may_come_after_the_effect(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.fail_next("create", EngineUnreachable("lost the answer"), happens_after=True)
    with pytest.raises(EngineUnreachable):
        runtime.create(spec)
    assert [state.session for state in runtime.containers()] == [spec.session]


def test_failures_hit_their_owner_alone(runtime: MemoryRuntime) -> None:
    runtime.fail_next("containers", EngineUnreachable("away"))
    assert MemoryRuntime(new_session(), "here").containers() == []
    with pytest.raises(EngineUnreachable):
        runtime.containers()


def test_an_open_stream_of_exits_can_be_broken(runtime: MemoryRuntime) -> None:
    exits = runtime.exits(threading.Event())
    runtime.fail_next("exits", EngineUnreachable("broken"))
    with pytest.raises(EngineUnreachable):
        next(exits)


def test_a_withheld_image_is_pulled_with_progress_or_refused(runtime: MemoryRuntime) -> None:
    told: list[str] = []
    runtime.withhold_image(pullable := new_session(), can_pull=True)
    runtime.withhold_image(missing := new_session())
    runtime.ensure_image(pullable, told.append)
    assert told == [f"Pulling {pullable}"]
    assert runtime.create(make_spec(pullable))
    with pytest.raises(ImageUnavailable):
        runtime.ensure_image(missing, told.append)


def test_the_spec_of_a_container_can_be_read_back(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.create(spec)
    assert runtime.spec(spec.session, 1) == spec
    runtime.vanish(spec.session, 1)
    assert runtime.spec(spec.session, 1) is None
