"""What happens to preemptible sessions: warned, spared, ended, back in the queue; whoever dies in between."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

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
from tests.queues import take_all

pytestmark = pytest.mark.django_db
BATCH: dict[str, Any] = {"kind": Kind.BATCH.value, "command": "train"}


def claim_on(session: Session, *, minutes: int = 2) -> StoredClaim:
    at = timezone.now() + timedelta(minutes=minutes)
    return StoredClaim(group_id=session.resource_group_id, placed=((1, session.host_id or 0, ()),), at=at)


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
    assert StoredClaim.from_json(waiting.claim or {}, 1) == claim
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


@pytest.mark.parametrize(
    "spoil", [{"status": Status.CANCELLED.value, "ended_at": timezone.now()}, {"claim": {"at": 1}}]
)
def test_only_what_waits_without_a_claim_gets_one(spoil: dict[str, Any]) -> None:
    victim, waiting = run_session(is_preemptible=True), make_session()
    Session.objects.filter(pk=waiting.pk).update(**spoil)
    with pytest.raises(StaleSessionError):
        preemption.warn(waiting.pk, claim_on(victim), [victim.pk])
    victim.refresh_from_db()
    assert victim.preempt_by is None


def test_either_all_are_warned_or_none() -> None:
    willing, unwilling, waiting = run_session(is_preemptible=True), run_session(), make_session()
    with pytest.raises(StaleSessionError, match="not there any more"), transaction.atomic():
        preemption.warn(waiting.pk, claim_on(willing), [willing.pk, unwilling.pk])
    for session in (willing, waiting):
        session.refresh_from_db()
    assert (willing.preempt_by, waiting.claim) == (None, None)


def test_who_is_warned_twice_is_refused_and_may_be_dropped() -> None:
    victim, waiting, other = run_session(is_preemptible=True), make_session(), make_session()
    preemption.warn(waiting.pk, claim_on(victim), [victim.pk])
    with pytest.raises(StaleSessionError), transaction.atomic():
        preemption.warn(other.pk, claim_on(victim), [victim.pk])
    preemption.drop_claims([waiting.pk, other.pk])
    waiting.refresh_from_db()
    assert waiting.claim is None


def test_what_ends_already_is_not_spared() -> None:
    victim = preempted()
    preemption.spare([victim.pk])
    victim.refresh_from_db()
    assert victim.preempt_by is not None
    assert not victim.events.filter(detail=preemption.SPARED).exists()


def test_a_spared_session_in_the_queue_is_told_nothing() -> None:
    victim = run_session(is_preemptible=True)
    preemption.warn(make_session().pk, claim_on(victim), [victim.pk])
    with transaction.atomic():
        victim.move_to(Status.TERMINATING, Reason.REQUEUED)
        victim.move_to(Status.PENDING, Reason.REQUEUED, fields={"host_id": None})
    preemption.spare([victim.pk])
    victim.refresh_from_db()
    assert (victim.preempt_by, victim.preempted_for) == (None, "")
    assert not victim.events.filter(detail=preemption.SPARED).exists()


def test_hosts_and_scheduler_are_told_of_each_end(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    running, starting = (session_in(status, is_preemptible=True) for status in (Status.RUNNING, Status.PREPARING))
    with django_capture_on_commit_callbacks(execute=True):
        preemption.warn(make_session().pk, claim_on(running), [running.pk, starting.pk])
    assert ("notifications.tasks.announce_ends", ()) in take_all("scheduler")
    with django_capture_on_commit_callbacks(execute=True):
        preemption.end_victims([running.pk, starting.pk])
    assert running.host
    assert take_all(f"host.{running.host.name}") == [("hostworker.tasks.stop_session", (running.pk, 1))]
    assert ("scheduler.tasks.run_pass", ()) in take_all("scheduler")


def test_a_victim_that_starts_meanwhile_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    victims = [session_in(Status.PREPARING, is_preemptible=True) for _ in range(2)]
    preemption.warn(make_session().pk, claim_on(victims[0]), [victim.pk for victim in victims])

    def start_others() -> None:
        for session in Session.objects.filter(status=Status.PREPARING):
            session.move_to(Status.RUNNING, Reason.STARTED)

    monkeypatch.setattr(preemption, "kick_scheduler", start_others)
    preemption.end_victims([victim.pk for victim in victims])
    assert sorted(Session.objects.filter(is_preemptible=True).values_list("status", flat=True)) == [
        Status.PENDING,
        Status.TERMINATING,
    ]


def test_a_batch_session_returns_the_last_time() -> None:
    victim = preempted(**BATCH, preemptions=MAX_PREEMPTIONS - 1)
    assert victim.detail == preemption.ENDED
    preemption.conclude(victim)
    assert Session.objects.get(pk=victim.pk).status == Status.PENDING


def test_what_has_moved_on_is_not_concluded() -> None:
    victim = preempted(**BATCH)
    old_view = Session.objects.get(pk=victim.pk)
    preemption.conclude(victim)
    with pytest.raises(StaleSessionError, match="moved on while"):
        preemption.conclude(old_view)


def test_an_interactive_session_is_ended_as_often_as_needed() -> None:
    victim = preempted(preemptions=MAX_PREEMPTIONS)
    assert (victim.detail, victim.preemptions) == (preemption.ENDED, MAX_PREEMPTIONS + 1)
