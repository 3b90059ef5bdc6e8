"""Reads hosts, what runs on them, and the rules of their groups."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from django.db.models import Case, DateTimeField, ExpressionWrapper, F, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Coalesce, Least

from resources.amounts.units import CORE_MILLI
from resources.gpus.tiers import Tier
from resources.gpus.topology import GpuTopology
from resources.models import WEIGHT_MILLI, Gpu, Host, HostStatus, ResourceGroup
from scheduler.core.types import (
    Closeness,
    GpuView,
    HostView,
    PlacementPolicyName,
    QueueOrder,
    Rules,
    RunningSession,
    Shares,
)
from scheduler.core.waiting.run_times import stem_of
from scheduler.snapshot.compiled_queries import execute, fetch
from sessions.lifecycle import HOSTED, Status
from sessions.models import STOP_DURATION, Session, SessionQuerySet, clock_expression, time_bound

HostedRow = tuple[
    str, int, int, int, int, datetime, datetime | None, int | None, int, bool, str, int, str, bool, int, str, str, int
]
_PLACEMENTS_BEFORE: Final = {"fgd": "balance"}  # what the version before may still choose while an upgrade lasts
_SHARES: Final = """
    SELECT lease_id, gpu_id, milli FROM compute_gpushare WHERE lease_id = ANY (%s::varchar[]) ORDER BY id
"""


def rules_of(group_ids: set[int] | None) -> dict[int, Rules]:
    """Return the scheduling rules of these groups, or of all, by group id; takes one query."""
    groups = ResourceGroup.objects.all() if group_ids is None else ResourceGroup.objects.filter(pk__in=group_ids)
    return {
        group.pk: Rules(
            placement_policy=PlacementPolicyName(_PLACEMENTS_BEFORE.get(group.placement, group.placement)),
            queue_order=QueueOrder(group.queue_order),
            ageing=group.ageing,
            reservation_delay=group.reservation_delay,
            overhead=group.start_allowance + STOP_DURATION,
            half_life=group.half_life,
            starvation_limit=group.starvation_limit,
            core_milli=group.core_milli,
        )
        for group in groups
    }


def running_sessions(ids: Collection[str] | None) -> list[RunningSession]:
    """Return the sessions that hold a lease, or those of `ids`, with their latest ends; takes two queries."""
    rows = fetch(_hosted_rows, ids)
    shares = _shares_of([row[0] for row in rows])
    return [
        RunningSession(
            *row[:5],
            shares.get(row[0], ()),
            *row[5:9],
            is_preemptible=row[9],
            preempted_for=row[10],
            core_milli=row[11],
            cluster_id=row[12],
            is_elastic=row[13],
            image_id=row[14],
            stem=stem_of(row[15]),
            gpu_model=row[16],
            gpu_weight=row[17],
        )
        for row in rows
    ]


def _shares_of(session_ids: Sequence[str]) -> dict[str, Shares]:
    """Return the GPU shares of these sessions in device order, by id; takes one query.

    By an array of ids rather than a join: with stale statistics a join of 37,000 new leases took minutes.
    """
    shares: dict[str, Shares] = {}
    if session_ids:
        for session_id, gpu_id, milli in execute(_SHARES, [list(session_ids)]):
            shares[session_id] = (*shares.get(session_id, ()), (gpu_id, milli))
    return shares


def _hosted_rows(sessions: SessionQuerySet) -> QuerySet[Session, HostedRow]:
    """Return the rows behind `running_sessions`.

    The latest end is that of its limits, and the time to stop it; or when it is ended for another. One that is being
    stopped ends soon, but no later.
    """
    planned = Least(clock_expression() + time_bound() + F("extension"), F("preempt_by")) + STOP_DURATION
    stopped = Case(When(status=Status.TERMINATING, then=F("status_at") + STOP_DURATION))
    end = Least(stopped, ExpressionWrapper(planned, output_field=DateTimeField()))  # LEAST ignores NULL
    may_end = Q(is_preemptible=True, preempt_by=None) & ~Q(status=Status.TERMINATING)
    whole = Case(When(is_elastic=False, cluster__isnull=False, then=F("cluster_id")), default=Value(""))
    hosted = sessions.filter(status__in=HOSTED).annotate(
        begun=Coalesce("started_at", "status_at"), end=end, may_end=may_end, whole=whole
    )
    return hosted.values_list(
        *("pk", "owner_id", "host_id", "cpu", "memory", "begun", "end", "project_id", "charge_percent", "may_end"),
        *("preempted_for", "core_milli", "whole", "is_elastic", "image_id", "name", "gpu_model"),
        "gpu_weight_milli",
    )


def hosts_of(
    group_ids: set[int] | None,
    running: Iterable[RunningSession] = (),
    traits: Mapping[int, frozenset[str]] = MappingProxyType({}),
) -> tuple[tuple[HostView, ...], frozenset[int]]:
    """Return the hosts of these groups, or of all, that may take sessions, less what `running` holds; two queries.

    `traits` is by host id. The second value is the groups that have ready hosts which are cordoned.
    """
    cpu_held, memory_held, milli_held = _held(running)
    gpus: dict[int, list[GpuView]] = {}
    present = Gpu.objects.filter(is_present=True, kind=F("host__group__accelerator")).order_by("host", "index")
    hosts = Host.objects.filter(group__is_active=True, status=HostStatus.READY)
    if group_ids is not None:
        present, hosts = present.filter(host__group__in=group_ids), hosts.filter(group__in=group_ids)
    undivided: set[int] = set()
    indexes: dict[int, list[int]] = {}
    columns = ("pk", "host_id", "host__group__fgpu_per_gpu", "tier", "index", WEIGHT_MILLI)
    for pk, host_id, per_gpu, tier, index, weight in present.values_list(*columns):
        indexes.setdefault(host_id, []).append(index)
        capacity = per_gpu * 1000
        if tier == Tier.NONE:  # a property of the host, equal on all its devices
            undivided.add(host_id)
        gpus.setdefault(host_id, []).append(GpuView(pk, capacity, capacity - milli_held[pk], weight))
    rows = list(
        hosts.order_by("name").values_list(
            "pk", "name", "group_id", "cpu", "memory", "is_cordoned", Cast("gpu_topology", TextField()), "topology"
        )
    )
    views = tuple(
        HostView(
            id=pk,
            name=name,
            group_id=group_id,
            cpu=cpu * CORE_MILLI,
            memory_bytes=memory,
            cpu_free=cpu * CORE_MILLI - cpu_held[pk],
            memory_free_bytes=memory - memory_held[pk],
            gpus=tuple(gpus.get(pk, ())),
            divides=pk not in undivided,
            traits=traits.get(pk, frozenset()),
            closeness=_closeness(gpu_topology, tuple(indexes.get(pk, ()))),
            topology=tuple(filter(None, topology.split("/"))),
        )
        for pk, name, group_id, cpu, memory, is_cordoned, gpu_topology, topology in rows
        if not is_cordoned
    )
    return views, frozenset(row[2] for row in rows if row[5])


def _held(running: Iterable[RunningSession]) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Return the thousandths of cores and bytes of memory that sessions hold, by host, and the milli-fGPU, by GPU."""
    cpu, memory, milli = Counter[int](), Counter[int](), Counter[int]()
    for one in running:
        cpu[one.host_id] += one.cpu * one.core_milli
        memory[one.host_id] += one.memory_bytes
        for gpu_id, share in one.shares:
            milli[gpu_id] += share
    return cpu, memory, milli


@lru_cache(maxsize=4096)
def _closeness(topology: str, indexes: tuple[int, ...]) -> Closeness:
    """Return how close the devices with these indexes are, by a topology as stored; most hosts share a few of them."""
    return GpuTopology.from_json(json.loads(topology)).closeness(indexes)
