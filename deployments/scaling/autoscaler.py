"""Looks at the load of all deployments that follow theirs, and has each run as many replicas as it needs, or none.

A look may die anywhere and run twice: a number of replicas is changed under the lock of the deployment's row, and only
from that which the look has seen. What it remembers is stored last; without it a decision is only made later.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.db import Error
from django.db.models import Prefetch
from redis.exceptions import RedisError

from deployments.models import Deployment, PrometheusQuery, Replica, ScalingMetric, ScalingRule
from deployments.scaling import cold_start, load, prometheus, services, shares
from deployments.scaling.decision import Bounds, Decision, Demand, decide, is_idle, with_use
from deployments.scaling.load import ServiceLoad
from deployments.scaling.memory import Memory
from deployments.scaling.shares import ReplicaShares
from resources import clock
from resources.models import HostStatus
from sessions.errors import RejectedError
from sessions.lifecycle import Reason
from sessions.models import SessionEvent

logger = logging.getLogger(__name__)

AFTER_REFUSAL: Final = timedelta(minutes=5)  # of a resize by a replica's host, for which shares stay
WORDS: Final = {
    ScalingMetric.OUTSTANDING: "{total} requests outstanding, {target} a replica",
    ScalingMetric.REQUESTS: "{total} requests a second, {target} a replica",
    ScalingMetric.GPU: "{total} % of the replicas' shares of GPUs in use, {target} % a replica",
    ScalingMetric.QUERY: "its query results in {total}, {target} a replica",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What one look has found, for all deployments."""

    now: datetime
    gpu: dict[str, float | None]  # by deployment
    queries: dict[int, float | None]  # results, by rule


def look() -> None:
    """Scale all deployments that follow their load."""
    try:
        _look()
    except (RedisError, OSError) as error:
        logger.warning("deployments are not scaled, since their load is not known: %s", error)


def _look() -> None:
    rows = _followers()
    ready = {row.pk: _ready(row) for row in rows}
    for row in rows:
        if row.waking_since is not None and ready[row.pk]:
            _try(partial(cold_start.note, row))
    # A deployment that wakes has the replicas that it wakes with: what waits for them says nothing of a steady load.
    awake = [row for row in rows if row.waking_since is None or ready[row.pk]]
    if not awake:
        return
    loads = load.loads([row.pk for row in awake])
    scene = _scene(awake, ready)
    memories = {row.pk: _scale(row, found, ready[row.pk], scene) for row, found in zip(awake, loads, strict=True)}
    load.keep({pk: memory.as_json() for pk, memory in memories.items() if memory})


def _followers() -> list[Deployment]:
    """Return the deployments that follow their load and are not stopped, with rules and replicas; three queries."""
    rows = Deployment.objects.live().filter(max_replicas__isnull=False, replicas__gt=0, owner__is_active=True)
    rules = Prefetch("scaling_rules", ScalingRule.objects.filter(is_paused=False))
    taking = Replica.objects.taking_requests().exclude(session__host__status=HostStatus.LOST)
    replicas = Prefetch("replica_rows", taking.select_related("session"))
    return list(rows.select_related("owner", "rollout", "revision").prefetch_related(rules, replicas).order_by("pk"))


def _ready(row: Deployment) -> list[Replica]:
    return list(row.replica_rows.all())


def _scene(rows: Sequence[Deployment], ready: dict[str, list[Replica]]) -> _Scene:
    now = clock.now()
    rules = [rule for row in rows for rule in row.scaling_rules.all()]
    by_gpu = {rule.deployment_id for rule in rules if rule.metric == ScalingMetric.GPU}
    expressions = _expressions(rows, [rule for rule in rules if rule.metric == ScalingMetric.QUERY])
    results = prometheus.results([*expressions.values()])
    return _Scene(
        now=now,
        gpu=load.gpu_percent({pk: [replica.pk for replica in ready[pk]] for pk in by_gpu}, now),
        queries={pk: results[expression] for pk, expression in expressions.items()},
    )


def _expressions(rows: Sequence[Deployment], rules: Sequence[ScalingRule]) -> dict[int, str]:
    """Return what is asked for each of these rules whose query is still offered; one query, none without rules."""
    if not rules:
        return {}
    offered = {query.name: query for query in PrometheusQuery.objects.filter(is_enabled=True)}
    names = {row.pk: row.name for row in rows}
    found = [(rule, offered[rule.query]) for rule in rules if rule.query in offered]
    return {rule.pk: query.of(rule.deployment_id, names[rule.deployment_id]) for rule, query in found}


def _scale(row: Deployment, found: ServiceLoad, ready: Sequence[Replica], scene: _Scene) -> Memory | None:
    """Take one decision for a deployment, carry it out, and return what is to be remembered; None: nothing new."""
    now = scene.now.timestamp()
    memory = Memory.of_json(found.memory)
    per_second = load.rate(memory.served if memory.served >= 0 else None, found.served, now - memory.seen_at)
    grown = _shares(row, ready)
    units = grown.units if grown else int
    size = sum(grown.held) / len(grown.held) / grown.base if grown else 1.0
    demands = [_demand(rule, found, per_second, scene, size) for rule in row.scaling_rules.all()]
    decision, after = decide(
        _bounds(row, grown), demands, memory, now=now, current=units(row.replicas), ready=units(len(ready))
    )
    in_use = None if per_second is None or found.outstanding is None else bool(found.outstanding or per_second)
    after = with_use(after, now=now, in_use=in_use, ready=len(ready))
    after = replace(after, served=-1 if found.served is None else found.served)
    idle_seconds = None if hasattr(row, "rollout") else row.idle_seconds
    if idle_seconds is not None and is_idle(after, now=now, idle_seconds=idle_seconds):
        return after if _try(partial(services.sleep, row, before=row.replicas)) else None
    if decision.replicas == units(row.replicas) and not (grown and _has_spare(row, grown)):
        return after
    is_scaled = _try(partial(_change, row, decision, grown))
    # Refused, it waits for the cool-down before the next try; changed by somebody else, that is the next look's.
    return after if is_scaled else replace(after, wanted=units(row.replicas))


def _change(row: Deployment, decision: Decision, grown: ReplicaShares | None) -> bool:
    """Have as many replicas, with such shares, as are wanted: further replicas where shares cannot grow now."""
    replicas, before = decision.replicas, row.replicas
    if grown is not None:
        wanted = shares.plan(decision.replicas, replicas=before, least=row.min_replicas, shares=grown)
        replicas = wanted.replicas
        if replicas == before:
            try:
                return services.resize(row, wanted, decision.why, before=before)
            except RejectedError as error:
                logger.info("deployment %s: its replicas are not resized: %s", row.pk, error.errors)
                replicas = min(row.max_replicas or 0, grown.replicas_without(decision.replicas, row.min_replicas))
    return replicas == before or services.scale(row, replicas, decision.why, before=before)


def _has_spare(row: Deployment, grown: ReplicaShares) -> bool:
    """Return whether a share is larger than it need be, though as many units are wanted as there are."""
    if any(replica.session.resize is not None for replica in _ready(row)):
        return False
    as_now = shares.plan(grown.units(row.replicas), replicas=row.replicas, least=row.min_replicas, shares=grown)
    return as_now.share > 0 and not as_now.grows


def _shares(row: Deployment, ready: Sequence[Replica]) -> ReplicaShares | None:
    """Return the shares of its replicas, where they grow; None where they do not, or while a revision is rolled out."""
    if row.max_fgpu is None or row.revision is None or not row.revision.share or not ready:
        return None
    if hasattr(row, "rollout") or any(replica.revision_id != row.revision_id for replica in ready):
        return None
    has_failed = SessionEvent.objects.filter(
        session__in=[replica.pk for replica in ready],
        reason=Reason.RESIZE_REFUSED,
        at__gt=clock.now() - AFTER_REFUSAL,
    )
    held = tuple(replica.session.fgpu for replica in ready)
    can_change = not has_failed.exists()
    return ReplicaShares(base=row.revision.share, held=held, limit=row.max_fgpu, can_change=can_change)


def _try(act: Callable[[], bool]) -> bool:
    """Return whether it was done; the faults of one deployment are not those of the others."""
    try:
        return act()
    except (Error, RejectedError):  # such as that it has just ended
        logger.exception("a deployment was not scaled; tried again at the next look")
        return False


def _bounds(row: Deployment, grown: ReplicaShares | None) -> Bounds:
    assert row.max_replicas is not None  # `_followers` says so
    return Bounds(
        minimum=row.min_replicas,
        maximum=grown.most_units(row.max_replicas) if grown else row.max_replicas,
        down_after=row.down_after_seconds,
        cooldown=row.cooldown_seconds,
    )


def _demand(rule: ScalingRule, found: ServiceLoad, per_second: float | None, scene: _Scene, size: float) -> Demand:
    """Return what a rule finds; `size` is how many units a replica is."""
    metric = ScalingMetric(rule.metric)
    gpu = scene.gpu.get(rule.deployment_id)  # in percent of the shares that they have now
    totals = {
        ScalingMetric.OUTSTANDING: found.outstanding,
        ScalingMetric.REQUESTS: per_second,
        ScalingMetric.GPU: None if gpu is None else gpu * size,
        ScalingMetric.QUERY: scene.queries.get(rule.pk),
    }
    key = f"{metric.value} {rule.pk}" if metric == ScalingMetric.QUERY else metric.value
    return Demand(key=key, total=totals[metric], target=rule.target, words=WORDS[metric])
