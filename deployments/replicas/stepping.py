"""Rollouts by steps, as rows: begun by commands, moved by the reconciliation, all under the lock of the deployment."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from deployments import events
from deployments.figures import RevisionTotals
from deployments.models import Deployment, Replica, Revision, RolloutStrategy, StepwiseRollout
from deployments.replicas import observation, rollout, stepwise
from deployments.replicas.rollout import PastReplica, ReplicaFact
from deployments.replicas.stepwise import Answered, Move, StepComparison, StepRules, StepwisePlan
from resources import clock

Totals = Mapping[int, RevisionTotals]  # by the number of the revision


def under_way(row: Deployment) -> StepwiseRollout | None:
    """Return the deployment's rollout by steps, None without one; one query."""
    return StepwiseRollout.objects.filter(deployment=row).first() if row.previous_revision_id else None


def proven(row: Deployment, found: StepwiseRollout) -> Revision | None:
    """Return the revision that serves for now, if the rollout ends here: the old one, until requests have switched."""
    has_switched = not found.is_canary and found.begun_at is not None
    return row.revision if has_switched else row.previous_revision


def start(row: Deployment) -> None:
    """Begin to roll out the current revision by steps, where the strategy has some and the one before serves."""
    old = row.replica_rows.taking_requests().filter(revision=row.previous_revision)
    if row.strategy != RolloutStrategy.ROLLING and row.replicas and old.exists():
        StepwiseRollout.objects.create(deployment=row, strategy=row.strategy, steps=row.canary_steps)


def drop(row: Deployment, revision: Revision) -> bool:
    """Take all requests from a revision at once, where another serves; else its replicas go as others come."""
    if not row.replica_rows.taking_requests().exclude(revision=revision).exists():
        return False
    row.replica_rows.live().filter(revision=revision, draining_since=None).update(draining_since=clock.now())
    return True


def move(
    row: Deployment, found: StepwiseRollout, serving: Sequence[Replica], totals: Totals | None, wanted: int
) -> str | None:
    """Take the rollout to its next step if that is due; return why to go back, "" to stay, None where it has moved."""
    now = clock.now()
    if not wanted:
        if found.begun_at is not None:
            _save(found, begun_at=None)
        return ""
    _, new = _facts(row, serving, now)
    complete = stepwise.is_complete(wanted, found.percent, new)
    compared = comparison(row, found, totals) if totals is not None else None
    if found.is_canary:
        moved = stepwise.canary_move(found.begun_at, now, complete=complete, compared=compared, rules=rules(row))
    else:
        moved = stepwise.blue_green_move(found.begun_at, now, complete=complete, rules=rules(row))
    match moved:
        case Move.BEGIN if totals is not None or not found.is_canary:
            begin(row, found, totals or {})
        case Move.NEXT:
            go_on(row, found)
        case Move.RETURN if compared is not None:
            return words_of(row, compared)
        case _:
            return ""
    return None


def begin(row: Deployment, found: StepwiseRollout, totals: Totals) -> None:
    """Have requests go to the replicas of the new revision, which are healthy."""
    counted = {str(number): totals[number].as_json() for number in _numbers(row) if number in totals}
    _save(found, begun_at=clock.now(), counted=counted)
    number = row.revision.number if row.revision else 0
    share = f"{found.percent} % of the requests" if found.is_canary else "all requests"
    events.record(row, f"Revision {number} gets {share}.")


def promote(row: Deployment, found: StepwiseRollout) -> None:
    """Pass the step that has begun before its time; old replicas that get no requests go with the next look."""
    if found.is_canary:
        go_on(row, found)
    else:
        _save(found, begun_at=clock.now() - timedelta(seconds=row.step_seconds))


def go_on(row: Deployment, found: StepwiseRollout) -> None:
    """Pass this step; after the last one, the replicas of the old revision are replaced."""
    if found.is_canary and found.step + 1 < len(found.steps):
        _save(found, step=found.step + 1, begun_at=None)
        return
    number = row.revision.number if row.revision else 0
    events.record(row, f"Revision {number} has passed all steps; it replaces the one before.")
    found.delete()


def plan(
    row: Deployment, found: StepwiseRollout, serving: Sequence[Replica], past: Sequence[PastReplica], wanted: int
) -> StepwisePlan:
    """Return what to launch and to drain, of the old revision and of the new one."""
    now = clock.now()
    old, new = _facts(row, serving, now)
    old_past = observation.past_of(row, row.previous_revision)
    is_standby = not found.is_canary and found.begun_at is not None
    return stepwise.plan(
        wanted=wanted,
        percent=found.percent,
        surge=row.max_surge,
        unavailable=row.max_unavailable,
        old=old,
        new=new,
        may_launch_old=not is_standby and _may_launch(old_past, now),
        may_launch_new=_may_launch(past, now),
    )


def comparison(row: Deployment, found: StepwiseRollout, totals: Totals) -> StepComparison:
    """Return what both revisions have answered since the step began."""
    new, old = _numbers(row)
    answered = {number: _answered(found.counted.get(str(number)), totals.get(number)) for number in (new, old)}
    last = totals[new].last_at if new in totals else 0.0
    return StepComparison(old=answered[old], new=answered[new], last_request_at=last)


def rules(row: Deployment) -> StepRules:
    """Return what a step must show."""
    return StepRules(seconds=row.step_seconds, max_error_points=row.max_error_points, max_p95_ratio=row.max_p95_ratio)


def words_of(row: Deployment, compared: StepComparison) -> str:
    """Return the figures of both revisions, as a sentence."""
    (_, old_number), old, new = _numbers(row), compared.old, compared.new
    words = f"{new.error_percent:.1f} % of its {new.requests} requests failed, against {old.error_percent:.1f} % of"
    words = f"{words} {old.requests} of revision {old_number}"
    if new.p95 is None or old.p95 is None:
        return f"{words}."
    return f"{words}; 95 % took up to {new.p95:.3g} s, against {old.p95:.3g} s."


def status_words(row: Deployment, found: StepwiseRollout, totals: Totals | None) -> str:
    """Return how far the rollout is; without counts, so that the words seldom change."""
    new, old = _numbers(row)
    if not found.is_canary:
        if found.begun_at is None:
            return f"Revision {new} gets all requests at once when all of its replicas are healthy."
        return f"Revision {new} gets all requests; replicas of revision {old} stay for {row.step_seconds} seconds."
    words = f"Revision {new} gets {found.percent_now} % of the requests."
    if found.begun_at is None:
        return f"{words} It gets {found.percent} % when its replicas are healthy."
    if clock.now() - found.begun_at < timedelta(seconds=row.step_seconds):
        return words
    if totals is None:
        return f"{words} It stays so while it is not known what was answered."
    if comparison(row, found, totals).new.requests < stepwise.MIN_REQUESTS:
        return f"{words} It waits for {stepwise.MIN_REQUESTS} requests, by which it is compared with revision {old}."
    return f"{words} It goes on when its replicas are healthy."


def _numbers(row: Deployment) -> tuple[int, int]:
    """Return the numbers of the new and of the old revision."""
    assert row.revision is not None and row.previous_revision is not None  # noqa: PT018  # `under_way` says so
    return row.revision.number, row.previous_revision.number


def _facts(row: Deployment, serving: Sequence[Replica], now: datetime) -> tuple[list[ReplicaFact], list[ReplicaFact]]:
    """Return the replicas of all other revisions, of which the previous one is wanted, and those of the new one."""
    new = [each for each in serving if each.revision_id == row.revision_id]
    old = [each for each in serving if each.revision_id != row.revision_id]
    return (
        [observation.fact_of(each, row, now, row.previous_revision_id) for each in old],
        [observation.fact_of(each, row, now) for each in new],
    )


def _may_launch(past: Sequence[PastReplica], now: datetime) -> bool:
    until = rollout.launch_after(past)
    return until is None or now >= until


def _answered(before: dict[str, Any] | None, total: RevisionTotals | None) -> Answered:
    """Return what was answered since; all there is where the counts have begun anew."""
    if total is None:
        return Answered()
    since = total.since(RevisionTotals.from_json(before)) if before else total
    return Answered(requests=since.requests, errors=since.errors, p95=since.quantile(0.95))


def _save(found: StepwiseRollout, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(found, name, value)
    found.save(update_fields=[*changes])
