"""Assigning: placements become leases, events and messages, once."""

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from resources import clock
from scheduler.core.types import Placement
from sessions.launching.services import assign, assign_each, set_aside
from sessions.lifecycle import Reason, Status
from sessions.models import GpuShare, Lease, Session
from tests.factories import make_host, make_session
from tests.queues import take_all

pytestmark = pytest.mark.django_db


def test_a_placement_writes_lease_event_and_message(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    host = make_host(gpus=2)
    gpu = host.gpus.last()
    assert gpu
    session = make_session(resource_group=host.group, fgpu=350)
    placement = Placement(session_id=session.pk, host_id=host.pk, shares=((gpu.pk, 350),))
    with django_capture_on_commit_callbacks(execute=True):
        assert assign([placement]) == 1
    session.refresh_from_db()
    assert (session.status, session.reason, session.attempt) == (Status.SCHEDULED, Reason.ASSIGNED, 1)
    assert (session.host, session.detail) == (host, f"Placed on {host.name}.")
    lease = Lease.objects.get()
    assert (lease.session, lease.host, lease.cpu, lease.memory) == (session, host, session.cpu, session.memory)
    assert list(GpuShare.objects.values_list("lease", "gpu", "milli")) == [(session.pk, gpu.pk, 350)]
    assert [str(share) for share in GpuShare.objects.all()] == [f"350 of {gpu.pk}"]
    event = session.events.get()
    assert (event.old_status, event.new_status, event.detail) == ("PENDING", "SCHEDULED", session.detail)
    assert event.at == session.status_at
    assert take_all(f"host.{host.name}") == [("hostworker.tasks.start_session", (session.pk, 1))]


def test_sessions_no_longer_pending_are_skipped() -> None:
    host = make_host()
    cancelled, waiting = (make_session(resource_group=host.group) for _ in range(2))
    cancelled.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    placements = [Placement(session_id=session.pk, host_id=host.pk) for session in (cancelled, waiting)]
    assert assign(placements) == 1
    assert assign(placements) == 0
    assert [lease.session for lease in Lease.objects.all()] == [waiting]
    assert Session.objects.get(pk=cancelled.pk).status == Status.CANCELLED
    assert Session.objects.get(pk=waiting.pk).attempt == 1


def test_placements_beyond_the_host_are_refused_whole() -> None:
    host = make_host(cpu=1)
    placements = [Placement(session_id=make_session(resource_group=host.group).pk, host_id=host.pk) for _ in range(2)]
    with pytest.raises(IntegrityError, match="leases exceed their host"), transaction.atomic():
        assign(placements)
    assert not Lease.objects.exists()
    assert set(Session.objects.values_list("status", flat=True)) == {Status.PENDING}


def test_what_the_database_refuses_is_left_out_and_set_aside() -> None:
    host = make_host(cpu=3)
    small, large, other = (make_session(resource_group=host.group, cpu=cpu) for cpu in (1, 9, 2))
    placements = [Placement(session_id=session.pk, host_id=host.pk) for session in (small, large, other)]
    now = clock.now()
    assert assign_each([], now) == (0, {})
    count, refused = assign_each(placements, now)
    assert (count, list(refused)) == (2, [large.pk])
    assert "leases exceed their host" in refused[large.pk]
    assert {lease.session for lease in Lease.objects.all()} == {small, other}
    set_aside(refused, now)
    large.refresh_from_db()
    assert (large.status, large.refused_until) == (Status.PENDING, now)
    assert large.events.get().reason == Reason.PLACEMENT_REFUSED


def test_shares_that_are_not_the_request_are_refused() -> None:
    host = make_host(gpus=1)
    session = make_session(resource_group=host.group, fgpu=500)
    assign([Placement(session_id=session.pk, host_id=host.pk, shares=((host.gpus.get().pk, 490),))])
    with pytest.raises(IntegrityError, match="disagree"):
        connection.check_constraints()  # as the commit would
    transaction.set_rollback(True)


@pytest.mark.parametrize("count", [1, 30])
def test_assign_takes_a_constant_number_of_queries(
    count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    host = make_host(gpus=1, cpu=64)
    gpu = host.gpus.get().pk
    sessions = [make_session(resource_group=host.group, fgpu=10) for _ in range(count)]
    placements = [Placement(session_id=each.pk, host_id=host.pk, shares=((gpu, 10),)) for each in sessions]
    with transaction.atomic(), django_assert_num_queries(1):
        assert assign(placements) == count
