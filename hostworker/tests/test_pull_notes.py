"""What a session shows of the pull of its image, and notes on its timeline."""

from collections.abc import Callable

import pytest

from hostworker.images import host_images
from hostworker.runtime.pull import PullText
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import fresh, start_session
from resources.amounts.units import MIB
from resources.models import HostImage, Image
from sessions import notes
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.requeueing import requests as requeue
from tests.factories import make_user, run_session, session_in

pytestmark = pytest.mark.django_db


def test_a_pull_is_shown_while_it_lasts(runtime: FaultInjectingRuntime) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.remove_image(session.image.reference, can_pull=True)
    seen: list[str] = []
    runtime.just_before("create", lambda: seen.append(fresh(session).detail))
    start_session(runtime, session.pk, 1)
    assert seen == [f"Pulling {session.image.reference}"]
    assert fresh(session).detail == "Running."


def test_a_finished_pull_is_on_the_timeline(runtime: FaultInjectingRuntime) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.remove_image(session.image.reference, can_pull=True)
    start_session(runtime, session.pk, 1)
    stored = fresh(session)
    assert (stored.pulled_bytes, stored.pull_bytes) == (0, None)  # how much is not known here
    reasons = [event.reason for event in session.events.all()]
    assert reasons == [Reason.ASSIGNED, Reason.CLAIMED, Reason.IMAGE_PULLED, Reason.STARTED]


@pytest.mark.parametrize("is_pulled", [False, True])
def test_a_host_reports_its_images_after_a_pull_alone(runtime: FaultInjectingRuntime, is_pulled: bool) -> None:
    session = session_in(Status.SCHEDULED)
    if is_pulled:
        runtime.remove_image(session.image.reference, can_pull=True)
    start_session(runtime, session.pk, 1)
    assert HostImage.objects.filter(host=session.host, image=session.image).exists() is is_pulled


def test_the_size_of_a_pull_is_shown_and_noted(runtime: FaultInjectingRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_in(Status.SCHEDULED)

    def pull(runtime: FaultInjectingRuntime, image: Image, on_progress: Callable[[str], None]) -> bool:
        on_progress(PullText("x" * 301, pulled_bytes=5, total_bytes=1234 * MIB))
        shown = fresh(session)
        assert (shown.detail, shown.pulled_bytes, shown.pull_bytes) == ("x" * 300, 5, 1234 * MIB)
        return True

    monkeypatch.setattr(host_images, "ensure", pull)
    start_session(runtime, session.pk, 1)
    note = session.events.get(reason=Reason.IMAGE_PULLED)
    assert note.detail == f"{session.image.reference} is on the host now (1.2 GiB)."
    fresh(session).move_to(Status.TERMINATING, Reason.USER_REQUEST)
    Session.objects.filter(pk=session.pk).update(status=Status.SCHEDULED)
    runtime.just_before("create", lambda: cleared.append(fresh(session).pulled_bytes))
    cleared: list[int | None] = []
    monkeypatch.setattr(host_images, "ensure", lambda *_: False)
    start_session(runtime, session.pk, 1)
    assert cleared == [None]


def test_no_pull_is_noted_for_a_session_returned_meanwhile(runtime: FaultInjectingRuntime) -> None:
    session = session_in(Status.SCHEDULED)
    runtime.remove_image(session.image.reference, can_pull=True)
    runtime.just_before("ensure_image", lambda: requeue.requeue(fresh(session), actor=make_user(is_superuser=True)))
    start_session(runtime, session.pk, 1)
    moves = list(session.events.order_by("pk").values_list("old_status", "new_status", "reason"))
    assert moves[-1] == (Status.PREPARING, Status.PENDING, Reason.REQUEUED)
    assert runtime.containers() == []


def test_a_note_has_the_status_of_now() -> None:
    session = run_session()
    fresh(session).move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert notes.note(session, Reason.ENTERED, "Somebody opened a terminal.")
    event = session.events.latest("pk")
    assert (event.old_status, event.new_status) == (Status.TERMINATING, Status.TERMINATING)
    Session.objects.filter(pk=session.pk).delete()
    assert not notes.note(session, Reason.ENTERED, "Somebody opened a terminal.")
