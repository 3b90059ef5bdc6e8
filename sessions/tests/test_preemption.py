"""What happens to preemptible sessions: warned, spared, ended, back in the queue; whoever dies in between."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from hostworker.containers import runner
from hostworker.runtime.memory.runtime import MemoryRuntime
from resources.models import HostStatus
from sessions import sweeps
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import FairUse, Lease, Session, StaleSessionError
from sessions.requeueing import preemption
from sessions.requeueing.preemption import MAX_PREEMPTIONS, StoredClaim
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_host, make_policy, make_session, make_user, run_session, session_in

pytestmark = pytest.mark.django_db
BATCH: dict[str, Any] = {"kind": Kind.BATCH.value, "command": "train"}


def claim_on(session: Session, *, minutes: int = 2) -> StoredClaim:
    at = timezone.now() + timedelta(minutes=minutes)
    return StoredClaim(group_id=session.resource_group_id, host_id=session.host_id or 0, shares=(), at=at)


def preempted(**overrides: Any) -> Session:
    """Return a session that is being stopped for another."""
    victim = run_session(is_preemptible=True, **overrides)
    preemption.warn(make_session().pk, claim_on(victim), [victim.pk])
    preemption.end_victims([victim.pk])
    victim.refresh_from_db()
    assert (victim.status, victim.reason) == (Status.TERMINATING, Reason.PREEMPTED)
    return victim


def test_a_warning_moves_the_end_and_is_withdrawn() -> None:
    victim, waiting = run_session(is_preemptible=True), make_session()
    claim = claim_on(victim)
    preemption.warn(waiting.pk, claim, [victim.pk])
    victim.refresh_from_db()
    waiting.refresh_from_db()
    assert (victim.status, victim.ends_at, victim.preempted_for) == (Status.RUNNING, claim.at, waiting.pk)
    assert victim.extension_left == timedelta(0)
    assert StoredClaim.from_json(waiting.claim or {}) == claim
    preemption.spare([victim.pk])
    victim.refresh_from_db()
    assert (victim.ends_at, victim.preempted_for) == (None, "")
    texts = [event.detail for event in victim.events.filter(reason=Reason.PREEMPTED)]
    assert texts == [preemption.WARNING.format(at=claim.at), preemption.SPARED]


@pytest.mark.parametrize(("is_preemptible", "status"), [(False, Status.RUNNING), (True, Status.TERMINATING)])
def test_nobody_else_is_warned(is_preemptible: bool, status: Status) -> None:
    victim, waiting = session_in(status, is_preemptible=is_preemptible), make_session()
    with pytest.raises(StaleSessionError):
        preemption.warn(waiting.pk, claim_on(victim), [victim.pk])
    victim.refresh_from_db()
    assert victim.preempt_by is None


def test_an_interactive_session_ends_with_the_reason() -> None:
    victim = preempted()
    runner.stop(MemoryRuntime(uuid4().hex, "here"), victim.pk, victim.attempt)
    victim.refresh_from_db()
    assert (victim.status, victim.reason, victim.detail) == (Status.TERMINATED, Reason.PREEMPTED, preemption.ENDED)


def test_batch_session_returns_to_the_queue_and_is_charged() -> None:
    victim = preempted(**BATCH, started_at=timezone.now() - timedelta(hours=1))
    created_at, host = victim.created_at, victim.host_id
    runner.stop(MemoryRuntime(uuid4().hex, "here"), victim.pk, victim.attempt)
    victim.refresh_from_db()
    assert (victim.status, victim.reason, victim.detail) == (Status.PENDING, Reason.PREEMPTED, preemption.BACK)
    assert (victim.created_at, victim.started_at, victim.host_id) == (created_at, None, None)
    assert (victim.preempt_by, victim.preempted_for, victim.preemptions) == (None, "", 1)
    assert victim.avoided_hosts == [host]
    assert not Lease.objects.filter(session=victim).exists()
    assert FairUse.objects.get(user=victim.owner).cpu_seconds > 0


def test_a_batch_session_returns_a_bounded_number_of_times() -> None:
    victim = preempted(**BATCH, preemptions=MAX_PREEMPTIONS)
    runner.stop(MemoryRuntime(uuid4().hex, "here"), victim.pk, victim.attempt)
    victim.refresh_from_db()
    assert (victim.status, victim.result) == (Status.TERMINATED, "FAILURE")
    assert victim.detail == preemption.LAST.format(count=MAX_PREEMPTIONS + 1)


def test_owner_can_end_it_for_good_while_stopping() -> None:
    victim = preempted(**BATCH)
    old_view = Session.objects.get(pk=victim.pk)
    services.terminate(victim, actor=victim.owner)
    preemption.conclude(old_view)
    victim.refresh_from_db()
    assert (victim.status, victim.reason) == (Status.TERMINATED, Reason.USER_REQUEST)


def test_ending_it_back_in_the_queue_cancels_it() -> None:
    victim = preempted(**BATCH)
    old_view = Session.objects.get(pk=victim.pk)
    runner.stop(MemoryRuntime(uuid4().hex, "here"), victim.pk, victim.attempt)
    services.terminate(old_view, actor=victim.owner)
    assert Session.objects.get(pk=victim.pk).status == Status.CANCELLED


def test_one_that_has_not_started_waits_again() -> None:
    victim = session_in(Status.PREPARING, is_preemptible=True)
    preemption.warn(make_session().pk, claim_on(victim), [victim.pk])
    preemption.end_victims([victim.pk])
    victim.refresh_from_db()
    assert (victim.status, victim.preemptions, victim.detail) == (Status.PENDING, 0, preemption.UNSTARTED)


def test_a_batch_session_on_a_lost_host_returns_too() -> None:
    victim = preempted(**BATCH)
    assert victim.host is not None
    victim.host.status, victim.host.lost_at = HostStatus.LOST, timezone.now() - timedelta(days=1)
    victim.host.save()
    sweeps.end_on_lost_hosts()
    assert Session.objects.get(pk=victim.pk).status == Status.PENDING


def test_a_policy_can_allow_preemptible_sessions_only() -> None:
    host = make_host()
    owner = make_user(policy=make_policy(preemptible_only=True))
    (session,) = services.submit(owner, make_launch_request(host))
    assert (session.is_preemptible, session.charge_percent) == (True, host.group.preemptible_charge_percent)
    with pytest.raises(RejectedError) as refused:
        services.submit(owner, make_launch_request(host, is_preemptible=False))
    assert refused.value.errors == {"is_preemptible": "Your policy allows preemptible sessions only."}
    (usual,) = services.submit(make_user(), make_launch_request(host))
    assert (usual.is_preemptible, usual.charge_percent) == (False, 100)
