"""Administrators return sessions to the queue."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEntry, User
from hostworker.containers import runner
from hostworker.runtime.memory.runtime import MemoryRuntime
from resources.models import HostStatus
from sessions import sweeps
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Lease, Session
from sessions.requeueing import requests as requeue
from tests.factories import make_user, parked_session, session_in

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
    client.post(address, {"action": "requeue", "_selected_action": [waiting.pk, batch.pk]})
    assert Session.objects.get(pk=batch.pk).reason == Reason.REQUEUED
    assert Session.objects.get(pk=waiting.pk).status == Status.PENDING
    assert AuditEntry.objects.filter(action="requeue").count() == 1
