"""Sums and maxima over the hosts of a resource group."""

from typing import Any

from django.db.models import Count, Max, Q

from accounts.limits import Amounts
from resources.models import ElasticPool, Host, ResourceGroup


def largest_amounts(group: ResourceGroup) -> Amounts:
    """Return the largest capacity of each amount on one host of the group, perhaps on different hosts; two queries.

    A host that could be made counts.
    """
    hosts = Host.objects.filter(group=group).annotate(present=Count("gpus", filter=Q(gpus__is_present=True)))
    most = hosts.aggregate(cpu=Max("cpu"), memory=Max("memory"), gpu_count=Max("present"))
    rows = [{"cpus": most["cpu"] or 0, "memory": most["memory"] or 0, "gpu_count": most["gpu_count"] or 0}]
    rows += possible_hosts(group)
    cpu, memory, gpu_count = (max(row[name] for row in rows) for name in ("cpus", "memory", "gpu_count"))
    return Amounts(cpu=cpu, memory=memory, fgpu=gpu_count * group.gpu_capacity, sessions=1)


def possible_hosts(group: ResourceGroup, most: int = 1) -> list[dict[str, Any]]:
    """Return hosts that could be made for a group, by their stored types, at most so many of each; one query."""
    pool = ElasticPool.objects.filter(group=group).first()
    return [] if pool is None else pool.possible_types * min(most, pool.max_hosts)
