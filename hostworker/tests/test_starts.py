"""A slow pull holds up no start of an image that is there."""

import threading
from contextlib import nullcontext

import pytest

from hostworker.agent import starts
from hostworker.app_processes import starter as app_starter
from hostworker.containers import runner
from hostworker.images import host_images
from hostworker.runtime_protocol import EngineUnreachableError, ImageUnavailableError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.parking import services as parking
from tests.factories import lease_session, make_host, make_image, make_user, session_in
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


def status_of(session: Session) -> str:
    return Session.objects.values_list("status", flat=True).get(pk=session.pk)


def test_slow_pulls_hold_up_no_image_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, host, gate = FaultInjectingRuntime(), make_host(cpu=64), threading.Event()
    slow, here, owner = make_image(), make_image(), make_user()
    runtime.remove_image(slow.reference, can_pull=True)
    ensure = host_images.ensure

    def pull(*arguments: object) -> bool:
        assert gate.wait(SECONDS)
        return ensure(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(host_images, "ensure", pull)
    waiting = [session_in(Status.SCHEDULED, host=host, image=slow, owner=owner) for _ in range(40)]
    try:
        for session in waiting:  # more than there are threads for pulls, starts or tasks
            starts.begin(runtime, session.pk, 1)
        starts.begin(runtime, waiting[0].pk, 1)  # told twice
        assert {status_of(session) for session in waiting} == {Status.PREPARING}  # claimed: none is taken elsewhere
        quick = session_in(Status.SCHEDULED, host=host, image=here)
        starts.begin(runtime, quick.pk, 1)
        assert status_of(quick) == Status.RUNNING
        gate.set()
        until(lambda: {status_of(session) for session in waiting} == {Status.RUNNING})
    finally:
        gate.set()
        starts.end()
        app_starter.end()  # warm-ups
    assert len(runtime.containers()) == 41


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions whose apps would be started with them, in threads of their own."""
    warmed: list[str] = []
    monkeypatch.setattr(app_starter, "warm_up", lambda runtime, session: warmed.append(session.pk))
    return warmed


@pytest.mark.django_db
@pytest.mark.parametrize("failure", [EngineUnreachableError("away"), RuntimeError("a fault of ours")])
def test_start_that_cannot_look_for_its_image_is_repeated(failure: Exception, warmed: list[str]) -> None:
    def fail() -> None:
        raise failure

    runtime, session = FaultInjectingRuntime(), session_in(Status.SCHEDULED)
    runtime.just_before("has_image", fail)
    with pytest.raises(RuntimeError) if isinstance(failure, RuntimeError) else nullcontext():
        starts.begin(runtime, session.pk, 1)
    assert (status_of(session), runner.is_preparing(session.pk, 1), warmed) == (Status.PREPARING, False, [])
    runtime.fail_next("ensure_image", ImageUnavailableError("Not asked for what is here."))
    starts.begin(runtime, session.pk, 1)
    assert (status_of(session), warmed) == (Status.RUNNING, [session.pk])


@pytest.mark.django_db
def test_start_that_was_withdrawn_is_none(warmed: list[str]) -> None:
    session = session_in(Status.PENDING)
    starts.begin(FaultInjectingRuntime(), session.pk, 1)
    assert (status_of(session), warmed) == (Status.PENDING, [])


@pytest.mark.django_db
def test_parked_session_starts_at_once_without_its_image(warmed: list[str]) -> None:
    runtime, session = FaultInjectingRuntime(), session_in(Status.SCHEDULED)
    starts.begin(runtime, session.pk, 1)
    session.refresh_from_db()
    parking.park(session, actor=session.owner)
    runner.stop(runtime, session.pk, 1)
    runtime.remove_image(session.image.reference)
    parking.resume(session, actor=session.owner)
    lease_session(session, session.parked_on)
    starts.begin(runtime, session.pk, 2)
    assert status_of(session) == Status.RUNNING
