"""A slow pull holds up no start of an image that is there."""

import threading

import pytest

from hostworker.agent import starts
from hostworker.app_processes import starter as app_starter
from hostworker.images import host_images
from hostworker.tests.fault_injection import FaultInjectingRuntime
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import make_host, make_image, make_user, session_in
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
