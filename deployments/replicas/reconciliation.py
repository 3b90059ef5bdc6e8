"""Brings the replicas of deployments to what is wanted of them: every few seconds, and after changes.

Each deployment is reconciled in a transaction of its own, under the lock of its row, from what the rows say then. So it
may die anywhere, run twice, or be asked for by many at once.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from redis.exceptions import RedisError

from deployments import events, figures
from deployments.models import Deployment, DeploymentState, Replica, ReplicaHealth, Revision, StepwiseRollout
from deployments.replicas import launching, observation, preemptible, rollout, sleeping, status, stepping
from deployments.replicas.rollout import RolloutPlan
from resources import clock
from resources.models import HostStatus
from sessions.errors import RejectedError
from sessions.launching import services as sessions
from sessions.lifecycle import Reason, Status
from sessions.models import Session, end_expression

logger = logging.getLogger(__name__)

QUIET: Final = timedelta(seconds=3)  # without a request, as processes report each second, before a replica ends
MAX_LAUNCHES: Final = 8  # in one step, whose transaction holds locks
FAILED_STARTS: Final = "Its replicas failed before any was healthy."
DISABLED: Final = "The account of its owner is disabled."
SETTLED: Final = (
    DeploymentState.HEALTHY,
    DeploymentState.STOPPED,
    DeploymentState.ASLEEP,
    DeploymentState.ENDED,
)


def reconcile_all() -> None:
    """Reconcile the deployments that are not as wanted; what another process reconciles is left to it."""
    for pk in due():
        try:
            reconcile(pk)
        except Exception:  # of one, which must not keep the others waiting
            logger.exception("deployment %s: not reconciled, will try again", pk)


def due() -> list[str]:
    """Return the ids of the deployments that may not be as wanted; one query."""
    resting = Q(is_asleep=True, session__status=Status.PARKED, deployment__asleep_since__isnull=False)
    is_current = Q(revision=F("deployment__revision"), deployment__ended_at=None)
    unsettled = Replica.objects.filter(deployment=OuterRef("pk"), is_settled=False).exclude(resting & is_current)
    irregular = unsettled.filter(
        ~Q(session__status=Status.RUNNING)
        | ~Q(health=ReplicaHealth.HEALTHY)
        | Q(draining_since__isnull=False)
        | Q(session__preempt_by__isnull=False)
        | ~Q(session__host__status=HostStatus.READY)
        | Q(session__host__drain_by__isnull=False)
        | ~Q(revision=OuterRef("revision"))
        | Q(created_at__lt=OuterRef("restarted_at"))
    )
    own = Session.objects.filter(replica__deployment=OuterRef("pk"), replica__is_settled=False)
    leaving = own.annotate(end=end_expression()).filter(end__lt=clock.now() + observation.LEAD)
    counted = Count("replica_rows", filter=Q(replica_rows__is_settled=False, replica_rows__is_asleep=False))
    rows = Deployment.objects.annotate(unsettled=counted)
    is_changing = (
        ~Q(state__in=SETTLED)
        | ~Q(unsettled=F("replicas"))
        | Exists(irregular)
        | Exists(leaving)
        | Q(owner__is_active=False)
    )
    is_there = Q(ended_at=None) | Q(unsettled__gt=0) | Exists(irregular) | ~Q(state=DeploymentState.ENDED)
    live = rows.filter(is_there)
    return list(live.filter(is_changing).order_by("pk").values_list("pk", flat=True))


def reconcile(pk: str) -> None:
    """Take the next step with this deployment, unless another process does so at this moment."""
    related = ("owner__policy", "project__policy", "resource_group", "revision__image", "previous_revision", "given_up")
    rows = Deployment.objects.select_for_update(no_key=True, of=("self",), skip_locked=True).select_related(*related)
    busy, totals = _last_busy(pk), _totals(pk)
    with transaction.atomic():
        if row := rows.filter(pk=pk).first():
            _Reconciliation(row, clock.now(), busy, totals).run()


def step(row: Deployment) -> None:
    """Take the next step with a deployment whose row the caller's transaction has locked.

    What it has served is not asked for, so that what drains may end only when its time is over.
    """
    _Reconciliation(row, clock.now(), None, None).run()


def _last_busy(pk: str) -> dict[str, float] | None:
    """Return when each replica was busy last, in Unix seconds; None where that is not known."""
    try:
        return figures.last_busy(pk) if Replica.objects.live().filter(deployment=pk).exists() else {}
    except (RedisError, OSError) as error:
        logger.warning("deployment %s: it is not known what its replicas serve: %s", pk, error)
        return None


def _totals(pk: str) -> stepping.Totals | None:
    """Return what each revision has answered; None while none is rolled out by steps, or where it is not known."""
    try:
        return figures.revision_totals(pk) if StepwiseRollout.objects.filter(deployment=pk).exists() else None
    except (RedisError, OSError) as error:
        logger.warning("deployment %s: it is not known what its revisions have answered: %s", pk, error)
        return None


class _Reconciliation:
    """One step with one deployment, in the transaction that has locked its row."""

    def __init__(
        self, row: Deployment, now: datetime, busy: dict[str, float] | None, totals: stepping.Totals | None
    ) -> None:
        self._row = row
        self._now = now
        self._busy = busy
        self._totals = totals
        self._rollout = stepping.under_way(row)
        self._is_over = row.ended_at is not None or not row.owner.is_active
        self._wanted = 0 if self._is_over else row.replicas
        self._has_changed = False  # so that proxies must know

    def run(self) -> None:
        """Take note of what has ended, plan the next step, take it, and store how far it is."""
        observed = observation.observe(self._row)
        for replica in observed.ended:
            self._settle(replica)
        self._see_to_asleep(observed)
        given_up = [replica for replica in observed.serving if self._give_up(replica)]
        serving = [replica for replica in observed.serving if replica not in given_up]
        past = observation.past_of(self._row)
        if why := self._move(serving) or self._why_to_return(past):
            serving, past = self._return(why, serving), []
        old, plan = self._plan(serving, past)
        drained = [replica for replica in serving if replica.pk in plan.drains]
        for replica in drained:
            self._drain(replica)
        returned = self._take_back(plan.launches, observed)
        again, refusal = self._launch(min(old, MAX_LAUNCHES), self._row.previous_revision)
        new = min(plan.launches - len(returned), MAX_LAUNCHES - len(again))
        launched, refusal_of_new = self._launch(new, self._row.revision)
        launched, refusal = [*again, *launched], refusal or refusal_of_new
        draining = [replica for replica in (*observed.draining, *given_up, *drained) if replica not in returned]
        self._end_drained(draining, observed.asleep)
        left = [replica for replica in serving if replica not in drained]
        preemptible.mark(self._row, [*left, *returned, *launched])
        has_failed = bool(refusal) or rollout.failures_in_row(past) > 0
        self._note([*left, *returned, *launched], has_failed=has_failed, refusal=refusal)
        if self._has_changed:
            events.reconciled(self._row.pk)

    def _see_to_asleep(self, observed: observation.Observed) -> None:
        """End parked replicas that are of no use any more; take those back that somebody else has resumed."""
        for replica in list(observed.asleep):
            if replica.session.status == Status.TERMINATING and not self._is_over:
                continue
            if self._is_over or not sleeping.is_of_use(self._row, replica, self._now):
                sleeping.end(replica)
                observed.asleep.remove(replica)
            elif replica.session.status != Status.PARKED:
                sleeping.take_back(replica)
                observed.asleep.remove(replica)
                observed.serving.append(replica)

    def _take_back(self, count: int, observed: observation.Observed) -> list[Replica]:
        """Return replicas that are there in place of so many new ones: such as drain still, or are parked."""
        draining = [replica for replica in observed.draining if sleeping.may_return(self._row, replica, self._now)]
        may_return = draining[:count]
        for replica in may_return:
            sleeping.take_back(replica)
        resumed = [
            replica
            for replica in observed.asleep[: count - len(may_return)]
            if replica.session.status == Status.TERMINATING or sleeping.resume(replica)
        ]
        self._has_changed = self._has_changed or bool(may_return)
        return may_return + resumed

    def _settle(self, replica: Replica) -> None:
        """Take note of a replica that has ended, by itself or as it was to."""
        replica.failure, replica.is_settled = observation.failure_of(replica), True
        replica.save(update_fields=["failure", "is_settled"])
        self._has_changed = True
        if replica.failure and replica.draining_since is None:
            words = f"A replica of revision {replica.revision.number} has failed. {replica.failure}"
            events.record(self._row, words)

    def _give_up(self, replica: Replica) -> bool:
        """Drain a replica that is unhealthy for too long, gives way to another session, or whose host is silent."""
        failure = observation.given_up_words(replica, self._now)
        other = preemptible.GIVES_WAY if preemptible.gives_way(replica) else ""
        if sleeping.cannot_resume(replica, self._now):
            failure, other = "", sleeping.NO_ROOM
        silent = f"Its host {replica.session.host} is unreachable."
        words = failure or other or (silent if observation.is_on_lost_host(replica, self._now) else "")
        if not words:
            return False
        replica.failure = failure
        events.record(self._row, f"A replica of revision {replica.revision.number} is replaced. {words}")
        self._drain(replica)
        return True

    def _drain(self, replica: Replica) -> None:
        replica.draining_since = self._now
        replica.save(update_fields=["draining_since", "failure"])
        self._has_changed = True

    def _move(self, serving: list[Replica]) -> str:
        """Take a rollout by steps to its next one, if that is due; return why it must go back, or ""."""
        if self._rollout is None:
            return ""
        why = stepping.move(self._row, self._rollout, serving, self._totals, self._wanted)
        if why is None:
            self._has_changed = True
            self._rollout = stepping.under_way(self._row)
        return why or ""

    def _why_to_return(self, past: list[rollout.PastReplica]) -> str:
        """Return why the current revision is given up, since its replicas fail; "" where it is not."""
        row = self._row
        if self._is_over or row.previous_revision is None or not any(each.has_failed for each in past):
            return ""
        if rollout.must_return(past, was_any_healthy=observation.was_any_healthy(row)):
            return FAILED_STARTS
        if self._rollout is not None and rollout.failures_in_row(past) >= rollout.FAILURES_BEFORE_RETURN:
            return "Its replicas have failed again and again."
        return ""

    def _return(self, why: str, serving: list[Replica]) -> list[Replica]:
        """Make the revision before the current one current again; return what still serves."""
        row, failed = self._row, self._row.revision
        assert failed is not None and row.previous_revision is not None  # noqa: PT018  # there is one to return to
        words = f"Revision {failed.number} was given up. {why} Activated revision {row.previous_revision.number} again."
        events.record(row, words)
        row.revision, row.previous_revision, row.given_up = row.previous_revision, None, failed
        row.activated_at, row.given_up_why = self._now, "" if why == FAILED_STARTS else why[:300]
        row.save(update_fields=["revision", "previous_revision", "given_up", "given_up_why", "activated_at"])
        self._has_changed = True
        if self._rollout is None:
            return serving
        self._rollout.delete()
        self._rollout = None
        is_dropped = stepping.drop(row, failed)
        return [replica for replica in serving if not is_dropped or replica.revision_id != failed.pk]

    def _plan(self, serving: list[Replica], past: list[rollout.PastReplica]) -> tuple[int, RolloutPlan]:
        """Return how many replicas of the old revision are to be launched, and the plan for all others."""
        if self._rollout is not None:
            both = stepping.plan(self._row, self._rollout, serving, past, self._wanted)
            drains = (*both.old.drains, *both.new.drains)
            return both.old.launches, RolloutPlan(launches=both.new.launches, drains=drains)
        until = rollout.launch_after(past)
        return 0, rollout.plan(
            wanted=self._wanted,
            surge=self._row.max_surge,
            unavailable=self._row.max_unavailable,
            replicas=[observation.fact_of(replica, self._row, self._now) for replica in serving],
            may_launch=until is None or self._now >= until,
        )

    def _launch(self, count: int, revision: Revision | None) -> tuple[list[Replica], str]:
        """Launch so many replicas; return them, and why no more of them could be, or ""."""
        launched: list[Replica] = []
        if revision is None:
            return launched, ""
        for _ in range(count):
            try:
                with transaction.atomic():
                    launched.append(launching.launch(self._row, revision))
            except RejectedError as error:
                return launched, " ".join(error.errors.values())
        return launched, ""

    def _end_drained(self, draining: list[Replica], asleep: list[Replica]) -> None:
        """End or park the replicas that drain and have no request left, or have had their time."""
        for replica in draining:
            if replica.session.status == Status.TERMINATING or not self._may_end(replica):
                continue
            if sleeping.is_to_be_parked(self._row, replica, asleep, self._now) and sleeping.park(replica):
                asleep.append(replica)
            else:
                sessions.end(replica.session, Reason.DEPLOYMENT, self._words_of_end(replica))

    def _may_end(self, replica: Replica) -> bool:
        since = replica.draining_since or self._now
        has_served = replica.healthy_at is not None and replica.session.status == Status.RUNNING
        if self._is_over or not has_served:
            return True
        if self._now - since >= timedelta(seconds=self._row.drain_seconds) + QUIET:
            return True
        if self._busy is None:
            return False
        quiet_since = max(since.timestamp(), self._busy.get(replica.pk, 0.0))
        return self._now.timestamp() - quiet_since >= QUIET.total_seconds()

    def _words_of_end(self, replica: Replica) -> str:
        if self._row.ended_at is not None:
            return "Its deployment has ended."
        return replica.failure or "Its deployment no longer needs it."

    def _note(self, serving: list[Replica], *, has_failed: bool, refusal: str) -> None:
        """Store the state and what is wrong, where either has changed."""
        row = self._row
        facts = [observation.fact_of(replica, row, self._now) for replica in serving]
        is_unhealthy = any(replica.health == ReplicaHealth.UNHEALTHY for replica in serving)
        state = status.state_of(row, facts, self._wanted, has_failed=has_failed or is_unhealthy)
        progress = stepping.status_words(row, self._rollout, self._totals) if self._rollout else ""
        problem = status.problem_of(row, serving, refusal, progress) if not self._is_over else ""
        if row.ended_at is None and not row.owner.is_active:
            problem = DISABLED
        if (state, problem) != (row.state, row.problem):
            row.state, row.problem = state.value, problem
            row.save(update_fields=["state", "problem"])
            self._has_changed = True
