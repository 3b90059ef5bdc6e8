"""Reads what could be made for elastic groups, what comes already, and what is told to those who wait."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db.models import F, QuerySet

from folders.models import StorageRoot
from resources import clock
from resources.amounts.units import CORE_MILLI
from resources.elastic.host_types import cost_milli
from resources.models import COMING, OVER, ElasticHost, ElasticPool
from scheduler.core.provisioning import Budget
from scheduler.core.types import (
    ARCHITECTURE_TRAIT,
    GPU_MODEL_TRAIT,
    STORAGE_TRAIT,
    ComingHost,
    HostOutlook,
    HostType,
    gpu_size_trait,
)
from scheduler.snapshot.host_traits import CLUSTER_NETWORK

MAX_AT_ONCE: Final = 20  # hosts that are asked for in a pass over a pool
HOUR: Final = timedelta(hours=1)
USUAL_JOIN: Final = timedelta(minutes=2)  # until a host has come
JOINS: Final = 10  # whose mean is what the next one is expected to take
MAX_REASON: Final = 100  # characters, so that the sentence stays whole


def types_of(pool: ElasticPool, root_ids: Sequence[int]) -> dict[str, HostType]:
    """Return the types of hosts of a pool by name; those with the storage roots given are said to mount them.

    Hosts are expected to mount what is shared, and to be able to have the networks of clusters.
    """
    shared = {CLUSTER_NETWORK, *(f"{STORAGE_TRAIT}:{root_id}" for root_id in root_ids)}
    found = {}
    for row in pool.host_types:
        traits = {*shared, f"{ARCHITECTURE_TRAIT}:{row['architecture']}"}
        traits |= {f"{GPU_MODEL_TRAIT}:{row['gpu_model']}"} if row["gpu_model"] else set()
        if row["gpu_memory"]:
            traits.add(gpu_size_trait(row["gpu_memory"], divides=row["divides_gpus"]))
        found[row["name"]] = HostType(
            name=row["name"],
            cpu=row["cpus"] * CORE_MILLI,
            memory_bytes=row["memory"],
            gpu_count=row["gpu_count"],
            gpu_capacity_milli=pool.group.gpu_capacity,
            gpu_memory_bytes=row["gpu_memory"] or 0,
            divides=row["divides_gpus"],
            traits=frozenset(traits),
            cost_milli=cost_milli(row["cost_per_hour"]),
        )
    return found


def shared_root_ids() -> list[int]:
    """Return the ids of the storage roots that hosts share; one query."""
    return list(StorageRoot.objects.filter(is_shared=True).order_by("pk").values_list("pk", flat=True))


def budget_of(pool: ElasticPool, live: Sequence[ElasticHost], now: datetime) -> Budget:
    """Return what a pool may still make: by the number of hosts, those asked for in the last hour, and the cost."""
    recent = ElasticHost.objects.filter(pool=pool, created_at__gt=now - HOUR).count()
    hosts = max(0, min(pool.max_hosts - len(live), pool.hosts_per_hour - recent, MAX_AT_ONCE))
    if pool.cost_per_hour is None:
        return Budget(hosts)
    spent = sum(cost_milli(host.cost_per_hour) for host in live)
    return Budget(hosts, max(0, cost_milli(pool.cost_per_hour) - spent))


def live_hosts(pool: ElasticPool) -> QuerySet[ElasticHost]:
    """Return the hosts of a pool that have not been given back."""
    return ElasticHost.objects.filter(pool=pool).exclude(state__in=OVER).select_related("host").order_by("pk")


def join_time(pool: ElasticPool, type_name: str = "") -> timedelta:
    """Return how long the last hosts have taken from the decision until they took sessions, in the mean.

    Those of the type, else of the pool; at most two queries.
    """
    joined = ElasticHost.objects.filter(pool=pool, joined_at__isnull=False).order_by("-joined_at")
    for rows in (joined.filter(type_name=type_name), joined) if type_name else (joined,):
        if spans := list(rows.values_list(F("joined_at") - F("created_at"), flat=True)[:JOINS]):
            return sum(spans, timedelta()) / len(spans)
    return USUAL_JOIN


def load_outlooks(group_id: int | None = None) -> dict[int, HostOutlook]:
    """Return what those who wait are told, by group id; one query, and up to four more for each elastic group."""
    pools = ElasticPool.objects.filter(is_enabled=True, group__is_active=True, max_hosts__gt=0).select_related("group")
    if group_id is not None:
        pools = pools.filter(group=group_id)
    return {pool.group_id: _outlook(pool, clock.now()) for pool in pools}


def _outlook(pool: ElasticPool, now: datetime) -> HostOutlook:
    types, live = types_of(pool, shared_root_ids()), list(live_hosts(pool))
    coming = [host for host in live if host.state in COMING and host.type_name in types]
    if pool.silent_since is not None:
        text = silence_text(pool)
    elif coming:
        expected = [ComingHost(types[host.type_name], host.expected_at) for host in coming if host.expected_at]
        kinds = tuple({host.type_name: types[host.type_name] for host in coming}.values())
        return HostOutlook(kinds, _coming_text(coming, expected), tuple(expected))
    elif pool.retry_at is not None and pool.retry_at > now:
        text = pool.problem
    elif len(live) >= pool.max_hosts:
        text = f"No more hosts are made: the resource group has {len(live)} of {pool.max_hosts}."
    elif not any(budget_of(pool, live, now).allows(kind, 1) for kind in types.values()):
        text = "No more hosts are made for now: the budget of the resource group is used up."
    else:
        minutes = max(1, round(join_time(pool) / timedelta(minutes=1)))
        text = f"A host is made for it if none is free before, which takes about {minutes} min."
    return HostOutlook(tuple(types.values()), text)


def _coming_text(coming: Sequence[ElasticHost], expected: Sequence[ComingHost]) -> str:
    if not expected:
        return f"A host was asked for at {coming[0].created_at:%H:%M} UTC; it takes longer than usual to come."
    at = min(host.at for host in expected)
    return f"A host comes at about {at:%H:%M} UTC; it was asked for at {coming[0].created_at:%H:%M} UTC."


def problem_text(asked_at: datetime, reason: str, retry_at: datetime) -> str:
    """Return that a host did not come, why, and when the next is asked for, for those who wait."""
    return (
        f"A host was asked for at {asked_at:%H:%M} UTC and did not come: {_words(reason)}; "
        f"trying again at {retry_at:%H:%M} UTC."
    )


def unused_text(came_at: datetime, retry_at: datetime) -> str:
    """Return that a host came which those who wait could not use, and when the next is asked for."""
    return (
        f"A host came at {came_at:%H:%M} UTC, but no session that waits could start on it; "
        f"trying again at {retry_at:%H:%M} UTC."
    )


def silence_text(pool: ElasticPool) -> str:
    """Return since when the provider of a pool has not answered, and what it said instead."""
    since, words = pool.silent_since, _words(pool.silence)
    return f"What makes hosts for the resource group has not answered since {since:%H:%M} UTC: {words}."


def _words(reason: str) -> str:
    return reason[:MAX_REASON].rstrip(". ")
