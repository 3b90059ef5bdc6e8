"""Notifications are written with the change that they tell of, once each, as their reader chose."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone, translation

from accounts.models import User
from notifications import services
from notifications.delivery.texts import text_of
from notifications.kinds import FOR_SUPERADMINS, NoticeKind, Ways
from notifications.models import Notification
from sessions import notes
from sessions.conversion import services as conversions
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Conversion, ConversionState, Session, StaleSessionError
from tests.api import client_of
from tests.factories import make_session, make_user, run_session, session_in

pytestmark = pytest.mark.django_db


def kinds_of(user: User) -> list[str]:
    """Return what the user was told, the oldest first."""
    return list(Notification.objects.filter(user=user).order_by("id").values_list("kind", flat=True))


def test_starts_and_faults_are_notified_once() -> None:
    session = run_session(make_session(created_at=timezone.now() - timedelta(minutes=5)))
    session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    assert kinds_of(session.owner) == ["STARTED", "FAILED"]
    started, failed = Notification.objects.order_by("id")
    assert (started.on_page, started.in_browser, started.by_email, started.shown_at) == (True, True, False, None)
    assert text_of(started).title == f"{session.name} is running"
    assert text_of(failed).title == f"{session.name} has failed"
    assert "Out of memory" in text_of(failed).body
    assert text_of(failed).url == f"/sessions/{session.pk}/"
    with translation.override("ko"):
        assert session.name in text_of(failed).title


def test_what_its_user_sees_anyway_is_only_listed() -> None:
    session = run_session()
    assert Notification.objects.get().shown_at is not None
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert kinds_of(session.owner) == ["STARTED"]


@pytest.mark.parametrize(
    ("target", "reason", "kind", "told"),
    [
        (Status.TERMINATED, Reason.CONTAINER_EXITED, Kind.BATCH, "ENDED"),
        (Status.TERMINATED, Reason.TIME_LIMIT, Kind.BATCH, "FAILED"),
        (Status.TERMINATED, Reason.TIME_LIMIT, Kind.INTERACTIVE, "ENDED"),
        (Status.TERMINATED, Reason.ADMIN_REQUEST, Kind.INTERACTIVE, "ENDED"),
        (Status.ERROR, Reason.HOST_LOST, Kind.INTERACTIVE, "FAILED"),
    ],
)
def test_ends_are_notified_by_their_kind(target: Status, reason: Reason, kind: Kind, told: str) -> None:
    session = run_session(make_session(kind=kind.value, command="x" if kind == Kind.BATCH else ""))
    session.move_to(target, reason)
    assert kinds_of(session.owner)[1:] == [told]


def test_a_session_that_others_cancelled_is_notified() -> None:
    waiting = make_session()
    waiting.move_to(Status.CANCELLED, Reason.PENDING_TIMEOUT)
    assert kinds_of(waiting.owner) == ["ENDED"]
    assert kinds_of(session_in(Status.CANCELLED).owner) == []


def test_owners_are_notified_that_a_host_refused_a_resize() -> None:
    session = run_session()
    notes.note(session, Reason.RESIZING, "From 1 CPU core to 2.")
    notes.note(session, Reason.RESIZE_REFUSED, "It uses more memory than that.")
    assert kinds_of(session.owner)[1:] == ["RESIZE_REFUSED"]
    told = Notification.objects.latest("id")
    assert text_of(told).title == f"{session.name} was not resized"
    assert text_of(told).body == "It uses more memory than that."


def test_a_change_that_fails_tells_nothing() -> None:
    session = run_session()
    Notification.objects.all().delete()
    with transaction.atomic():
        session.move_to(Status.ERROR, Reason.HOST_LOST)
        transaction.set_rollback(True)
    assert not Notification.objects.exists()
    stale = Session.objects.get(pk=session.pk)
    stale.move_to(Status.ERROR, Reason.HOST_LOST)
    session.refresh_from_db()
    with pytest.raises(StaleSessionError):
        session.move_to(Status.ERROR, Reason.HOST_LOST)
    assert kinds_of(session.owner) == ["FAILED"]


@pytest.mark.parametrize("is_done", [True, False])
def test_the_end_of_a_conversion_is_notified(is_done: bool) -> None:
    session = run_session()
    conversion = Conversion.objects.create(
        session=session, attempt=1, host=session.host, requested_by=session.owner, name="tool", tag="1", reference="r/t"
    )
    if is_done:
        Conversion.objects.filter(pk=conversion.pk).update(state=ConversionState.SAVING)
        conversion.refresh_from_db()
        assert session.host
        conversions.finish(conversion, session.host, size_bytes=1, registry_digest="", recipe="")
    else:
        conversions.fail(conversion, "The disk is full.")
        conversions.fail(conversion, "The disk is full.")
    assert kinds_of(session.owner)[1:] == ["IMAGE_READY" if is_done else "IMAGE_FAILED"]
    told = Notification.objects.first()
    assert told
    assert told.by_email == is_done
    assert text_of(told).body == ("Its full name is r/t." if is_done else "The disk is full.")


def test_the_same_is_notified_once_and_as_chosen() -> None:
    user = make_user()
    services.choose_ways(user, {NoticeKind.FAILED: Ways(on_page=False, in_browser=False, by_email=True)})
    services.choose_ways(user, {NoticeKind.FAILED: Ways(on_page=False, in_browser=False, by_email=False)})
    assert services.tell(user.pk, NoticeKind.FAILED, "event:1", facts={"name": "a"})
    assert not services.tell(user.pk, NoticeKind.FAILED, "event:1", facts={"name": "a"})
    told = Notification.objects.get()
    assert (told.on_page, told.by_email, told.email_due_at) == (False, False, None)
    assert told.shown_at is not None
    assert services.counts_of(user.pk) == {"unread": 0, "pending": 0}


def test_the_api_lists_marks_and_chooses(django_assert_num_queries: Any) -> None:
    user, other = make_user(), make_user()
    for number in range(3):
        services.tell(
            user.pk, NoticeKind.FAILED, f"event:{number}", facts={"name": "a", "reason": "HOST_LOST", "detail": ""}
        )
    client = client_of(user)
    with django_assert_num_queries(2):
        listed = client.get("/api/v1/notifications/").json()["results"]
    assert [row["title"] for row in listed] == ["a has failed"] * 3
    middle = f"/api/v1/notifications/{listed[1]['id']}/"
    assert client_of(other).get(middle).status_code == 404
    assert client_of(other).post(f"{middle}read/").status_code == 404
    assert client.post(f"{middle}read/").status_code == 204
    assert services.counts_of(user.pk)["unread"] == 1
    address = "/api/v1/notifications/preferences/"
    chosen = {"kind": "ENDED", "on_page": True, "in_browser": False, "by_email": True}
    assert chosen in client.put(address, [chosen]).json()
    assert {row["kind"] for row in client.get(address).json()} == {*NoticeKind} - FOR_SUPERADMINS
    assert client.put(address, [{**chosen, "kind": "NONE"}]).status_code == 400
