"""Commands on how deployments follow their load, by users and by the autoscaler.

Each is one transaction under the lock of the deployment's row. All raise RejectedError with a message per field, and
what others than the owner do is in the audit log.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts import audit
from accounts.limits import Amounts
from accounts.models import User
from deployments import events
from deployments.models import Deployment, DeploymentState, PrometheusQuery, ScalingRule, StepwiseRollout
from deployments.replicas import launching, preemptible, reconciliation
from deployments.scaling import validation
from deployments.scaling.shares import SharePlan
from deployments.services import count, locked
from resources import clock
from resources.amounts.units import fgpu_text
from sessions.errors import GENERAL, RejectedError
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize

SETTINGS: Final = (
    "min_replicas",
    "max_replicas",
    "down_after_seconds",
    "cooldown_seconds",
    "idle_seconds",
    "idle_action",
    "wake_seconds",
    "max_fgpu",
    "is_preemptible",
)


@audit.recorded_for_others("change scaling")
def change(deployment: Deployment, fields: Mapping[str, Any], *, actor: User) -> Deployment:
    """Change the settings that are given, by the names of SETTINGS. Without `max_replicas` nothing is scaled."""
    with locked(deployment) as row:
        changes = {name: fields[name] for name in SETTINGS if name in fields and fields[name] != getattr(row, name)}
        if not changes:
            return row
        after = {name: getattr(row, name) for name in SETTINGS} | changes
        base = row.revision.share if row.revision else 0
        errors = validation.settings_errors(after, base=base, capacity=row.resource_group.gpu_capacity)
        most = after["max_replicas"]
        if "max_replicas" not in errors and most is not None and (error := _too_many(row, most)):
            errors["max_replicas"] = error
        if errors:
            raise RejectedError(errors)
        if row.asleep_since is not None and (most is None or changes.get("idle_seconds", 0) is None):
            changes |= {"asleep_since": None, "waking_since": clock.now(), "replicas": after["min_replicas"]}
        said = ", ".join(f"{name} {_said(after[name])}".replace("_", " ") for name in SETTINGS if name in changes)
        events.record(row, f"Changed its scaling: {said}.", actor)
        _save(row, **changes)
        preemptible.mark(row)
    return row


def add_rule(
    deployment: Deployment, *, metric: str, target: float, query: str = "", is_paused: bool = False, actor: User
) -> ScalingRule:
    """Add a rule to the deployment. Raises RejectedError at its fields."""
    query = query.strip()
    try:
        with locked(deployment) as row:
            _check_rule(row, metric, target, query)
            if row.scaling_rules.count() >= validation.MAX_RULES:
                raise RejectedError({GENERAL: f"A deployment has at most {validation.MAX_RULES} rules."})
            with transaction.atomic():
                rule = row.scaling_rules.create(metric=metric, target=target, query=query, is_paused=is_paused)
            _record_rule(row, rule, "added", actor)
    except IntegrityError:
        raise RejectedError({"metric": "There is such a rule already: change that one."}) from None
    return rule


def change_rule(
    rule: ScalingRule, *, target: float | None = None, is_paused: bool | None = None, actor: User
) -> ScalingRule:
    """Change what one replica is for, or pause the rule. Raises RejectedError at its fields."""
    with locked(rule.deployment) as row:
        current = _rule_of(row, rule)
        current.target = current.target if target is None else target
        current.is_paused = current.is_paused if is_paused is None else is_paused
        if target is not None or not current.is_paused:
            _check_rule(row, current.metric, current.target, current.query)
        current.save(update_fields=["target", "is_paused"])
        _record_rule(row, current, "paused" if current.is_paused else "changed", actor)
    return current


def remove_rule(rule: ScalingRule, *, actor: User) -> None:
    """Remove the rule; the number of replicas stays, until another rule changes it."""
    with locked(rule.deployment) as row:
        current = _rule_of(row, rule)
        _record_rule(row, current, "removed", actor)
        current.delete()


def scale(deployment: Deployment, replicas: int, why: str, *, before: int) -> bool:
    """Have so many replicas run, by its load; return whether that was done.

    It is not where somebody else has changed their number meanwhile, or the policies allow fewer by now.
    """
    with locked(deployment) as row:
        if row.replicas != before or row.max_replicas is None or row.asleep_since is not None:
            return False
        if replicas > before and (error := _too_many(row, replicas)):
            _record_once(row, f"It should have {count(replicas)} by its load. {error}")
            return False
        events.record(row, f"Scaled from {before} to {replicas}: {why}.")
        _save(row, replicas=replicas)
    return True


def resize(deployment: Deployment, wanted: SharePlan, why: str, *, before: int) -> bool:
    """Have the replicas that serve hold the shares of their GPUs that are planned, by its load.

    Return False where none changes, or somebody else has changed the number of replicas meanwhile. Raises RejectedError
    where one of them cannot have its share now; then none is resized.
    """
    with locked(deployment) as row:
        if row.replicas != before or row.max_fgpu is None or row.asleep_since is not None:
            return False
        taking = row.replica_rows.taking_requests().select_related("session").order_by("pk")
        changed = [it.session for it in taking if wanted.of(it.session.fgpu) != it.session.fgpu]
        if not changed:
            return False
        for session in changed:
            target = SessionSize(cpu=session.cpu, memory=session.memory, fgpu=wanted.of(session.fgpu))
            resizing.resize(session, target, actor=row.owner)
        share = fgpu_text(wanted.share)
        grown = f"Each replica gets at least {share} fGPU: {why}."
        shrunk = f"Each replica gets at most {share} fGPU: {why}."
        events.record(row, grown if wanted.grows else shrunk)
        events.changed(row.pk)
    return True


def sleep(deployment: Deployment, *, before: int) -> bool:
    """Have no replicas run until a request comes; return False where that is no longer to be."""
    with locked(deployment) as row:
        if row.replicas != before or row.idle_seconds is None or row.asleep_since is not None or not before:
            return False
        if _is_rolled_out_by_steps(row):
            return False
        _fall_asleep(row, f"Fell asleep: no request came for {row.idle_seconds} s. The next one wakes it.")
    return True


@audit.recorded_for_others("sleep")
def sleep_now(deployment: Deployment, *, actor: User) -> Deployment:
    """Have no replicas run until a request comes, without a wait for quiet. Raises RejectedError where it cannot."""
    with locked(deployment) as row:
        if row.asleep_since is not None:
            return row
        if row.max_replicas is None:
            raise RejectedError({GENERAL: "Only what is scaled by its load sleeps: set max replicas first."})
        if not row.replicas:
            raise RejectedError({GENERAL: "It is stopped, so it has nothing to sleep with: ask for replicas first."})
        if _is_rolled_out_by_steps(row):
            raise RejectedError({GENERAL: "A rollout by steps is under way: pass all its steps or go back first."})
        _fall_asleep(row, "Sent to sleep. The next request wakes it.", actor)
    return row


@audit.recorded_for_others("wake")
def wake_now(deployment: Deployment, *, actor: User) -> Deployment:
    """Have the deployment run again before a request comes; without effect where it runs."""
    with locked(deployment) as row:
        if row.asleep_since is not None:
            events.record(row, f"Woken: {count(row.min_replicas)} to run.", actor)
            _save(row, **_awake(row))
        elif not row.replicas:
            raise RejectedError({GENERAL: "It does not sleep, it is stopped: say how many replicas are to run."})
    return row


def wake(deployment_id: str) -> bool:
    """Have the deployment run again for a request that came; without effect where it does not sleep.

    The parked replica goes on, or one is launched, in the same transaction: the request waits for it.
    """
    asleep = Deployment.objects.live().filter(pk=deployment_id, asleep_since__isnull=False)
    if not asleep.exists():  # so that requests in numbers do not wait for the row's lock
        return False
    with transaction.atomic():
        rows = asleep.select_for_update(no_key=True, of=("self",)).select_related("owner__policy", "revision")
        if (row := rows.first()) is None:
            return False
        events.record(row, f"A request wakes it: {count(row.min_replicas)} to run.")
        _store(row, **_awake(row))
        reconciliation.step(row)
    return True


def _fall_asleep(row: Deployment, what: str, actor: User | None = None) -> None:
    events.record(row, what, actor)
    _save(row, replicas=0, asleep_since=clock.now(), waking_since=None, state=DeploymentState.ASLEEP.value)


def _awake(row: Deployment) -> dict[str, Any]:
    return {"replicas": row.min_replicas, "asleep_since": None, "waking_since": clock.now()}


def _is_rolled_out_by_steps(row: Deployment) -> bool:
    """Return whether two revisions are compared: of the one that is parked alone, all cold requests would be."""
    return StepwiseRollout.objects.filter(deployment=row).exists()


def _record_once(row: Deployment, what: str) -> None:
    """Record what is tried again and again, unless that was recorded last."""
    last = row.events.first()
    if last is None or last.what != what[: events.MAX_LENGTH]:
        events.record(row, what)


def _too_many(row: Deployment, replicas: int) -> str | None:
    if row.revision is None:
        return None
    revision = row.revision
    each = Amounts(cpu=revision.cpu, memory=revision.memory, fgpu=revision.fgpu, sessions=1)
    return launching.replicas_error(row.owner, row, replicas, each)


def offered_queries() -> QuerySet[PrometheusQuery]:
    """Return the queries that rules may name."""
    return PrometheusQuery.objects.filter(is_enabled=True)


def _check_rule(row: Deployment, metric: str, target: float, query: str) -> None:
    errors = validation.rule_errors(
        metric=metric,
        target=target,
        query=query,
        concurrency=row.concurrency,
        queue=row.queue,
        has_gpu=row.revision.fgpu > 0 if row.revision else None,
        has_prometheus=bool(settings.COMPUTE_PROMETHEUS_URL),
        offered=[query.name for query in offered_queries()] if metric == "query" else (),
    )
    if errors:
        raise RejectedError(errors)


def _rule_of(row: Deployment, rule: ScalingRule) -> ScalingRule:
    current = row.scaling_rules.filter(pk=rule.pk).first()
    if current is None:
        raise RejectedError({GENERAL: "This rule was removed."})
    return current


def _record_rule(row: Deployment, rule: ScalingRule, what: str, actor: User) -> None:
    events.record(row, f"Rule {what}: {rule}.", actor)
    if actor != row.owner:
        audit.record(actor, "change scaling", row, {"rule": (None, f"{what}: {rule}")})
    events.changed(row.pk)


def _save(row: Deployment, **changes: Any) -> None:
    _store(row, **changes)
    events.changed(row.pk)


def _store(row: Deployment, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(update_fields=[*changes])


def _said(value: object) -> str:
    return "none" if value is None else str(value)
