"""Ending a session: from every status, twice, and at the same moment as something else."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks

from hostworker.containers import runner
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.tests.starting import start_session
from sessions.launching import services
from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import Lease, Session
from tests.factories import make_user, session_in
from tests.queues import take_all
from tests.wait import SECONDS

ENDS_AS = {
    Status.PENDING: Status.CANCELLED,
    Status.SCHEDULED: Status.CANCELLED,
    Status.PREPARING: Status.TERMINATING,
    Status.RUNNING: Status.TERMINATING,
    Status.TERMINATING: Status.TERMINATING,
    Status.PARKED: Status.TERMINATED,
} | {status: status for status in FINAL}


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_terminate_works_from_every_status_and_twice(
    status: Status, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    session = session_in(status)
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            services.terminate(session, actor=session.owner)
        stored = Session.objects.get(pk=session.pk)
        assert (stored.status, session.status) == (ENDS_AS[status],) * 2
    is_news = status != ENDS_AS[status]
    if is_news:
        assert (stored.reason, stored.detail) == (Reason.USER_REQUEST, f"Ended by {session.owner}.")
        assert session.events.last().actor == session.owner  # type: ignore[union-attr]
    messages = take_all(f"host.{session.host.name}") if session.host else []
    stops = is_news and ENDS_AS[status] == Status.TERMINATING
    assert messages == ([("hostworker.tasks.stop_session", (session.pk, 1))] if stops else [])
    assert Lease.objects.filter(session=session).exists() == (stored.status == Status.TERMINATING)


@pytest.mark.django_db
def test_an_end_by_somebody_else_says_so() -> None:
    session, admin = session_in(Status.RUNNING), make_user(is_superuser=True)
    services.terminate(session, actor=admin)
    assert (session.reason, session.detail) == (Reason.ADMIN_REQUEST, f"Ended by {admin}.")


@pytest.mark.django_db
def test_cancelling_a_scheduled_session_frees_its_lease(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    take_all("scheduler")
    session = session_in(Status.SCHEDULED)
    with django_capture_on_commit_callbacks(execute=True):
        services.terminate(session, actor=session.owner)
    assert not Lease.objects.exists()
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


@pytest.mark.django_db
def test_terminate_handles_a_stale_status() -> None:
    session = session_in(Status.SCHEDULED)
    old_view = Session.objects.get(pk=session.pk)
    session.move_to(Status.PREPARING, Reason.CLAIMED)
    session.move_to(Status.RUNNING, Reason.STARTED)
    services.terminate(old_view, actor=session.owner)
    assert old_view.status == Status.TERMINATING


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_an_admin_can_force_the_end(status: Status) -> None:
    session, admin = session_in(status), make_user(is_superuser=True)
    services.force_end(session, actor=admin)
    assert Session.objects.get(pk=session.pk).status in FINAL
    assert not Lease.objects.exists()


@pytest.mark.django_db
def test_force_end_of_an_ended_session_succeeds() -> None:
    session, admin = session_in(Status.TERMINATING), make_user(is_superuser=True)
    Session.objects.get(pk=session.pk).move_to(Status.TERMINATED, Reason.USER_REQUEST)
    services.force_end(session, actor=admin)
    assert session.status == Status.TERMINATED
    assert session.reason == Reason.USER_REQUEST


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(8))
def test_terminate_during_start_leaves_nothing_behind(round_: int) -> None:
    session = session_in(Status.SCHEDULED)
    runtime = MemoryRuntime(uuid4().hex, "here")
    together = threading.Barrier(2, timeout=SECONDS)

    def begin() -> None:
        together.wait()
        start_session(runtime, session.pk, 1)
        connection.close()

    def end() -> None:
        mine = Session.objects.select_related("owner", "host").get(pk=session.pk)
        together.wait()
        services.terminate(mine, actor=mine.owner)
        runner.stop(runtime, session.pk, 1)
        connection.close()

    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(begin), threads.submit(end)]:
            future.result(SECONDS)
    session.refresh_from_db()
    assert session.status in (Status.CANCELLED, Status.TERMINATED)
    assert runtime.containers() == []
    assert not Lease.objects.exists()
