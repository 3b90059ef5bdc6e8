"""What is free in resource groups. Constant numbers of queries, whatever the number of hosts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection
from django.db.models import Count, Q, Sum

from resources.amounts.units import CORE_MILLI
from resources.models import Host, HostStatus, ResourceGroup
from sessions.models import Lease, Session, cpu_held

_GPUS: Final = """
    SELECT device.group_id, count(*), count(*) FILTER (WHERE device.held = 0), sum(device.held)::bigint,
        min(device.held)
    FROM (
        SELECT host.group_id, gpu.id, coalesce(sum(share.milli), 0) AS held
        FROM resources_gpu gpu
        JOIN resources_host host ON host.id = gpu.host_id
        LEFT JOIN compute_gpushare share ON share.gpu_id = gpu.id
        WHERE gpu.is_present AND %(ready)s = host.status AND NOT host.is_cordoned AND host.group_id = ANY(%(groups)s)
        GROUP BY host.group_id, gpu.id
    ) AS device
    GROUP BY device.group_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """How much of an amount is free on hosts that take sessions, of how much."""

    free: int
    total: int

    @property
    def used(self) -> int:
        """What sessions hold."""
        return self.total - self.free


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStock:
    """What is free in a resource group."""

    group: ResourceGroup
    hosts: int  # that take sessions
    all_hosts: int
    cpu: Stock  # thousandths of a core, of which sessions hold what is guaranteed to them
    memory: Stock  # bytes
    fgpu: Stock  # milli-fGPU
    gpus: Stock  # devices; free ones are wholly free
    largest_share: int  # milli-fGPU that one device has free
    waiting: int  # sessions

    @property
    def can_start(self) -> bool:
        """True if a host takes sessions."""
        return self.hosts > 0


def stocks_of(groups: Iterable[ResourceGroup]) -> list[GroupStock]:
    """Return what is free in each of the groups; four queries."""
    known = list(groups)
    takes = Q(status=HostStatus.READY, is_cordoned=False)
    sums = {
        row["group"]: row
        for row in Host.objects.filter(group__in=known)
        .order_by()
        .values("group")
        .annotate(
            ready=Count("pk", filter=takes),
            count=Count("pk"),
            cpus=Sum("cpu", filter=takes, default=0),
            memories=Sum("memory", filter=takes, default=0),
        )
    }
    ready = Host.objects.filter(takes, group__in=known)
    leases = Lease.objects.filter(host__in=ready).order_by().values("host__group")
    taken = {row["host__group"]: row for row in leases.annotate(cpus=cpu_held(), memories=Sum("memory"))}
    gpus = _gpus_by_group(known)
    waiting: Counter[int] = Counter()
    pending = Session.objects.waiting().order_by().values_list("resource_group", "group_choices")
    for group_id, choices, count in pending.annotate(Count("pk")):
        waiting.update(dict.fromkeys(choices or [group_id], count))
    return [_stock(group, sums, taken, gpus, waiting) for group in known]


def _gpus_by_group(groups: list[ResourceGroup]) -> Mapping[int, Mapping[str, Any]]:
    """Return {group id: how many devices there are, are wholly free, are held, and the least that one has held}.

    In SQL of its own, since Django sums the shares of each device in a query of its own.
    """
    with connection.cursor() as cursor:
        cursor.execute(_GPUS, {"groups": [group.pk for group in groups], "ready": HostStatus.READY.value})
        return {
            group: {"count": count, "whole": whole, "taken": taken, "least": least}
            for group, count, whole, taken, least in cursor.fetchall()
        }


def _stock(
    group: ResourceGroup,
    sums: Mapping[int, Mapping[str, Any]],
    taken: Mapping[int, Mapping[str, Any]],
    gpus: Mapping[int, Mapping[str, Any]],
    waiting: Mapping[int, int],
) -> GroupStock:
    nothing: Mapping[str, Any] = {}
    total, used, device = sums.get(group.pk, nothing), taken.get(group.pk, nothing), gpus.get(group.pk, nothing)
    count = device.get("count", 0)
    capacity = count * group.gpu_capacity
    return GroupStock(
        group=group,
        hosts=total.get("ready", 0),
        all_hosts=total.get("count", 0),
        cpu=_left(total.get("cpus", 0) * CORE_MILLI, used.get("cpus", 0)),
        memory=_left(total.get("memories", 0), used.get("memories", 0)),
        fgpu=_left(capacity, device.get("taken", 0)),
        gpus=Stock(free=device.get("whole", 0), total=count),
        largest_share=max(0, group.gpu_capacity - device["least"]) if count else 0,
        waiting=waiting.get(group.pk, 0),
    )


def _left(total: int, used: int) -> Stock:
    return Stock(free=max(0, total - used), total=total)
