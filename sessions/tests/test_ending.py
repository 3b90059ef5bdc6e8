"""Ends that can be undone: who may, until when, and that none is forgotten or carried out twice."""

import threading
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.models import AuditEntry, User
from resources import clock
from sessions.ending import services as ending
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import RequestedEnd, Session, SessionEvent
from tests.factories import make_session, make_user, run_cluster, run_session
from tests.wait import until

pytestmark = pytest.mark.django_db


def let_time_pass() -> None:
    """Have what was asked for be due."""
    for end in RequestedEnd.objects.all():
        end.due_at -= ending.UNDO_SPAN
        end.save()


def status_of(session: Session) -> str:
    return Session.objects.get(pk=session.pk).status


def is_waited_for() -> bool:
    """Return whether another connection waits for what this one has locked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))")
        return cursor.fetchone() is not None


def test_a_requested_end_comes_once_it_is_due() -> None:
    session, other = run_session(), run_session()
    assert ending.request_end(session, actor=session.owner)
    ending.end_due()
    assert status_of(session) == Status.RUNNING
    let_time_pass()
    ending.end_due()
    assert (status_of(session), status_of(other)) == (Status.TERMINATING, Status.RUNNING)
    assert SessionEvent.objects.get(session=session, new_status=Status.TERMINATING).reason == Reason.USER_REQUEST
    events = SessionEvent.objects.count()
    ending.end_due()
    assert (RequestedEnd.objects.count(), SessionEvent.objects.count()) == (0, events)


def test_an_end_that_is_undone_does_not_come() -> None:
    session = make_session()
    ending.request_end(session, actor=session.owner)
    assert ending.undo([session.pk], actor=session.owner) == [session]
    let_time_pass()
    ending.end_due()
    assert status_of(session) == Status.PENDING
    assert ending.undo([session.pk], actor=session.owner) == []


def test_asked_again_or_by_the_api_it_ends_at_once() -> None:
    session, other = run_session(), make_session()
    ending.request_end(session, actor=session.owner)
    assert not ending.request_end(session, actor=session.owner)
    assert status_of(session) == Status.TERMINATING
    assert ending.undo([session.pk], actor=session.owner) == []
    ending.request_end(other, actor=other.owner)
    services.terminate(other, actor=other.owner)
    assert status_of(other) == Status.CANCELLED
    assert ending.undo([other.pk], actor=other.owner) == []
    let_time_pass()
    ending.end_due()
    assert RequestedEnd.objects.count() == 0


def test_what_is_ending_already_cannot_be_undone() -> None:
    session = run_session()
    services.terminate(session, actor=session.owner)
    assert not ending.request_end(session, actor=session.owner)
    assert not RequestedEnd.objects.exists()


def test_one_end_that_fails_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [run_session(), run_session()]
    for session in sessions:
        ending.request_end(session, actor=session.owner)
    let_time_pass()
    terminate = services.terminate

    def refuse_first(session: Session, *, actor: User) -> None:
        if session == sessions[0]:
            raise IntegrityError
        terminate(session, actor=actor)

    with monkeypatch.context() as patched:
        patched.setattr(services, "terminate", refuse_first)
        ending.end_due()
    assert [status_of(session) for session in sessions] == [Status.RUNNING, Status.TERMINATING]
    RequestedEnd.objects.update(due_at=clock.now())
    ending.end_due()
    assert status_of(sessions[0]) == Status.TERMINATING


def test_a_refused_end_backs_off_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = run_session()
    ending.request_end(session, actor=session.owner)
    tries: list[Session] = []

    def refuse(session: Session, *, actor: User) -> None:
        tries.append(session)
        raise IntegrityError

    monkeypatch.setattr(services, "terminate", refuse)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    for pause in (10, 20, 40, 80, 160, 300, 300):
        RequestedEnd.objects.update(due_at=now)
        ending.end_due()
        ending.end_due()  # it is not due
        assert RequestedEnd.objects.get().due_at == now + timedelta(seconds=pause)
    assert (len(tries), RequestedEnd.objects.get().failures) == (7, 7)
    assert [record.levelname for record in caplog.records if "and failed" in record.message] == ["ERROR"]


def test_only_who_asked_and_superadmins_undo() -> None:
    session, admin, another = run_session(), make_user(is_superuser=True), make_user(is_superuser=True)
    ending.request_end(session, actor=admin)
    assert ending.undo([session.pk], actor=session.owner) == []
    assert ending.undo([session.pk], actor=another) == [session]
    assert list(AuditEntry.objects.order_by("pk").values_list("actor", "action")) == [
        (admin.pk, "end"),
        (another.pk, "undo end"),
    ]


def test_a_cluster_ends_whole_even_without_its_first() -> None:
    first, second = run_cluster(2)[:2]
    ending.request_end(first, actor=first.owner)
    services.end(Session.objects.get(pk=first.pk), Reason.USER_REQUEST, "")
    first.refresh_from_db()
    first.move_to(Status.TERMINATED, Reason.USER_REQUEST, "")
    assert ending.requested_end_of(first) is not None
    let_time_pass()
    ending.end_due()
    assert status_of(second) == Status.TERMINATING


@pytest.mark.django_db(transaction=True)
def test_undoing_waits_for_an_end_under_way() -> None:
    session = run_session()
    ending.request_end(session, actor=session.owner)
    RequestedEnd.objects.update(due_at=session.created_at - timedelta(minutes=1))
    kept: list[Session] = []

    def undo() -> None:
        kept.extend(ending.undo([session.pk], actor=session.owner))
        connection.close()

    with transaction.atomic():
        ending.end_due()
        undoing = threading.Thread(target=undo)
        undoing.start()
        until(is_waited_for)
    undoing.join()
    assert (kept, status_of(session)) == ([], Status.TERMINATING)
