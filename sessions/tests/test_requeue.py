"""Owners and administrators return sessions to the queue."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import AuditEntry, User
from gpuplatform.tests.admin_pages import confirm
from hostworker.containers import runner
from hostworker.runtime.memory.runtime import MemoryRuntime
from resources.models import HostHealth, HostStatus, ImageSource
from sessions import sweeps
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import DependencyKind, Kind, Reason, Status
from sessions.models import Lease, Session, StaleSessionError
from sessions.requeueing import host_faults
from sessions.requeueing import requests as requeue
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import lease_session, make_host, make_image, make_session, make_user, parked_session, session_in
from tests.queues import take_all

OK = DependencyKind.AFTER_OK
pytestmark = pytest.mark.django_db
BATCH: dict[str, Any] = {"kind": Kind.BATCH.value, "command": "train"}


@pytest.fixture
def root() -> User:
    return make_user(is_superuser=True, email="root@example.org")


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.PREPARING])
def test_what_has_not_started_waits_again_at_its_place(root: User, status: Status) -> None:
    session = session_in(status, start_failures=2)
    created_at, host = session.created_at, session.host_id
    requeue.requeue(session, actor=root)
    session.refresh_from_db()
    assert session.start_failures == 0  # so that it need not pause
    assert (session.status, session.reason, session.host_id) == (Status.PENDING, Reason.REQUEUED, None)
    assert (session.created_at, session.avoided_hosts) == (created_at, [host])
    assert session.detail == "Returned to the queue by root@example.org."
    assert not Lease.objects.exists()
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.changes["status"]) == ("requeue", [status.value, "PENDING"])


def test_a_running_batch_session_is_stopped_and_waits_again(root: User) -> None:
    session = session_in(Status.RUNNING, **BATCH)
    requeue.requeue(session, actor=root)
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.REQUEUED)
    runner.stop(MemoryRuntime(uuid4().hex, "here"), session.pk, session.attempt)
    session.refresh_from_db()
    assert (session.status, session.reason, session.started_at) == (Status.PENDING, Reason.REQUEUED, None)
    assert not Lease.objects.exists()


def test_its_owner_may_still_end_it_for_good(root: User) -> None:
    session = session_in(Status.RUNNING, **BATCH)
    requeue.requeue(session, actor=root)
    services.terminate(session, actor=session.owner)
    runner.stop(MemoryRuntime(uuid4().hex, "here"), session.pk, session.attempt)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATED, Reason.USER_REQUEST)


def test_a_host_that_does_not_return_lets_it_wait_again(root: User) -> None:
    session = session_in(Status.RUNNING, **BATCH)
    requeue.requeue(session, actor=root)
    assert session.host
    type(session.host).objects.update(status=HostStatus.LOST, lost_at="2020-01-01T00:00Z")
    sweeps.end_on_lost_hosts()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.PENDING, Reason.REQUEUED)


def test_others_are_refused_with_the_reason(root: User) -> None:
    parked = parked_session()
    for session in (session_in(Status.RUNNING), session_in(Status.PENDING), session_in(Status.TERMINATED), parked):
        with pytest.raises(RejectedError):
            requeue.requeue(session, actor=root)
    assert not AuditEntry.objects.exists()


def test_its_owner_requeues_it_and_a_stranger_does_not() -> None:
    session = session_in(Status.RUNNING, **BATCH)
    address = f"/api/v1/sessions/{session.pk}/requeue/"
    assert client_of(make_user(email="other@example.org")).post(address).status_code == 404
    answer = client_of(session.owner).post(address).json()
    assert (answer["status"], answer["reason"]) == ("TERMINATING", "REQUEUED")
    again = client_of(session.owner).post(address)
    assert (again.status_code, again.json()["detail"]) == (400, "It holds no place on a host.")


def test_actions_requeue_and_extend_and_say_what_was_refused(client: Client, root: User) -> None:
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    waiting, batch = session_in(Status.PENDING), session_in(Status.RUNNING, **BATCH, time_limit="01:00:00")
    body = {"action": "extend", "_selected_action": [waiting.pk, batch.pk]}
    address = reverse("admin:compute_session_changelist")
    form = client.post(address, body).content.decode()
    assert (batch.name in form, 'value="480"' in form) == (True, True)
    assert not AuditEntry.objects.exists()
    page = client.post(address, body | {"minutes": "480"}, follow=True).content.decode()
    assert "Done for 1 session." in page
    assert f"“{waiting.name}”: Only a running session can be extended." in page
    assert AuditEntry.objects.get(action="extend").changes["extension"] == ["0:00:00", "8:00:00"]
    confirm(client, address, "requeue", [waiting.pk, batch.pk])
    assert Session.objects.get(pk=batch.pk).reason == Reason.REQUEUED
    assert Session.objects.get(pk=waiting.pk).status == Status.PENDING
    assert AuditEntry.objects.filter(action="requeue").count() == 1


@pytest.mark.parametrize(
    ("status", "overrides", "words"),
    [
        (Status.RUNNING, {}, "Only a batch session can run again"),
        (Status.PENDING, BATCH, "It holds no place on a host"),
        (Status.SCHEDULED, {}, ""),
        (Status.PREPARING, {"parked_attempt": 1}, "Only the host that has its files"),
    ],
)
def test_each_refusal_says_why(status: Status, overrides: dict[str, Any], words: str) -> None:
    refusal = requeue.refusal(session_in(status, **overrides))
    assert (words in refusal, bool(refusal)) == (True, bool(words))


def test_host_and_scheduler_are_told(
    root: User, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    take_all("scheduler")
    running, starting = session_in(Status.RUNNING, **BATCH), session_in(Status.SCHEDULED)
    assert running.host
    for session, queue, message in (
        (running, f"host.{running.host.name}", ("hostworker.tasks.stop_session", (running.pk, 1))),
        (starting, "scheduler", ("scheduler.tasks.run_pass", ())),
    ):
        with django_capture_on_commit_callbacks(execute=True):
            requeue.requeue(session, actor=root)
        assert message in take_all(queue)


def test_one_that_moves_on_meanwhile_is_refused(root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_in(Status.SCHEDULED)

    def end_first(session: Session) -> str:
        services.terminate(Session.objects.get(pk=session.pk), actor=root)
        return ""

    monkeypatch.setattr(requeue, "refusal", end_first)
    with pytest.raises(RejectedError, match="has just changed"):
        requeue.requeue(session, actor=root)


@pytest.mark.parametrize(
    ("avoided", "failed", "expected"),
    [([], 1, [1]), ([1, 2], 1, [2, 1]), ([1, 2], 3, [1, 2, 3]), ([1, 2], None, [1, 2])],
)
def test_the_host_that_failed_last_is_avoided_most(avoided: list[int], failed: int | None, expected: list[int]) -> None:
    assert host_faults.avoiding(Session(avoided_hosts=avoided), failed) == expected


@pytest.mark.parametrize(("source", "counts"), [(ImageSource.CATALOG, True), (ImageSource.SESSION, False)])
def test_a_failed_start_counts_against_its_host(source: ImageSource, counts: bool) -> None:
    session = session_in(Status.PREPARING, image=make_image(source=source))
    host_faults.note_failed_start(session, Reason.START_FAILED, "No runtime.")
    assert HostHealth.objects.filter(host__in=session.avoided_hosts).exists() is counts
    with pytest.raises(StaleSessionError, match="has no host"):
        host_faults.note_failed_start(session, Reason.START_FAILED, "No runtime.")


def test_one_that_moves_on_keeps_no_other_from_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host()
    both = [session_in(Status.PREPARING, host=host) for _ in range(2)]

    def end_the_other() -> None:
        for other in Session.objects.filter(status=Status.PREPARING):
            services.terminate(other, actor=other.owner)

    monkeypatch.setattr(host_faults, "kick_scheduler", end_the_other)
    assert host_faults.requeue_prepared(host, "It is silent.") == 1
    found = sorted(Session.objects.filter(pk__in=[session.pk for session in both]).values_list("status", flat=True))
    assert found == [Status.PENDING, Status.TERMINATING]


def test_a_session_is_tried_a_bounded_number_of_times() -> None:
    session = session_in(Status.PREPARING, start_failures=host_faults.MAX_RETRIES - 1)
    host_faults.note_failed_start(session, Reason.START_FAILED, "x" * 400)
    assert (session.status, session.start_failures, len(session.detail)) == (Status.PENDING, 3, 300)
    last = session_in(Status.PREPARING, start_failures=host_faults.MAX_RETRIES)
    host_faults.note_failed_start(last, Reason.START_FAILED, "x" * 400)
    assert (last.status, last.reason, last.start_failures) == (Status.ERROR, Reason.START_FAILED, 4)
    assert last.detail.startswith(f"Not started in 4 attempts, the last on host {last.host}. xxx")


def test_what_was_placed_since_it_was_read_returns_too(root: User) -> None:
    session = make_session()
    with transaction.atomic():
        lease_session(Session.objects.get(pk=session.pk))
    requeue.requeue(session, actor=root)
    assert (session.status, session.reason) == (Status.PENDING, Reason.REQUEUED)


def test_a_parked_session_is_parked_again_after_its_last_try() -> None:
    host = make_host()
    session = session_in(Status.PREPARING, host=host, start_failures=host_faults.MAX_RETRIES)
    Session.objects.filter(pk=session.pk).update(parked_on=host, parked_attempt=1)
    session.refresh_from_db()
    host_faults.note_failed_start(session, Reason.START_FAILED, "No runtime.")
    assert (session.status, session.reason) == (Status.PARKED, Reason.RESUME_FAILED)
    assert session.detail == f"Not started in 4 attempts, the last on host {host}. No runtime."


def test_nothing_waits_for_what_has_failed_already() -> None:
    host, owner = make_host(), make_user()
    failed, done = session_in(Status.ERROR, owner=owner), session_in(Status.TERMINATED, owner=owner)
    assert rejection(owner, make_launch_request(host, depends_on=dict.fromkeys([done, failed], OK))) == {
        "depends_on": f"{failed.name} ({failed.pk}) has ended without success, so this session would never start."
    }
    assert not rejection(owner, make_launch_request(host, depends_on={done: OK}))
    assert rejection(owner, make_launch_request(host, depends_on={session_in(Status.RUNNING): OK})) == {
        "depends_on": "You can only depend on sessions and arrays of your own."
    }
