"""What the in-memory runtime offers beside the contract: failures to order."""

import threading

import pytest

from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime.tests.runtime_worlds import make_spec, new_session
from hostworker.runtime_protocol import EngineUnreachableError, ImageUnavailableError, StartError


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime(new_session(), "here")


def test_an_operation_fails_as_often_as_asked_and_then_works(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.fail_next("create", StartError("no"), times=2)
    for _ in range(2):
        with pytest.raises(StartError):
            runtime.create(spec)
    assert runtime.containers() == []
    assert runtime.create(spec)


def test_a_failure_may_come_after_the_effect(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.fail_next("create", EngineUnreachableError("lost the answer"), happens_after=True)
    with pytest.raises(EngineUnreachableError):
        runtime.create(spec)
    assert [state.session for state in runtime.containers()] == [spec.session]


def test_failures_hit_their_owner_alone(runtime: MemoryRuntime) -> None:
    runtime.fail_next("containers", EngineUnreachableError("away"))
    assert MemoryRuntime(new_session(), "here").containers() == []
    with pytest.raises(EngineUnreachableError):
        runtime.containers()


def test_an_open_stream_of_exits_can_be_broken(runtime: MemoryRuntime) -> None:
    exits = runtime.exits(threading.Event())
    runtime.fail_next("exits", EngineUnreachableError("broken"))
    with pytest.raises(EngineUnreachableError):
        next(exits)


def test_a_withheld_image_is_pulled_with_progress_or_refused(runtime: MemoryRuntime) -> None:
    told: list[str] = []
    runtime.remove_image(pullable := new_session(), can_pull=True)
    runtime.remove_image(missing := new_session())
    runtime.images.ensure(pullable, told.append)
    assert told == [f"Pulling {pullable}"]
    assert runtime.create(make_spec(pullable))
    with pytest.raises(ImageUnavailableError):
        runtime.images.ensure(missing, told.append)


def test_the_spec_of_a_container_can_be_read_back(runtime: MemoryRuntime) -> None:
    spec = make_spec("image")
    runtime.create(spec)
    assert runtime.spec(spec.session, 1) == spec
    runtime.lose_container(spec.session, 1)
    assert runtime.spec(spec.session, 1) is None
