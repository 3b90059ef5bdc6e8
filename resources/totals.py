"""Sums and maxima over the hosts of a resource group."""

from django.db.models import Count, Max, Q

from accounts.limits import Amounts
from resources.models import Host, ResourceGroup


def largest_amounts(group: ResourceGroup) -> Amounts:
    """Return the largest capacity of each amount on one host of the group, perhaps on different hosts; one query."""
    hosts = Host.objects.filter(group=group).annotate(present=Count("gpus", filter=Q(gpus__is_present=True)))
    most = hosts.aggregate(cpu=Max("cpu"), memory=Max("memory"), gpu_count=Max("present"))
    fgpu = (most["gpu_count"] or 0) * group.gpu_capacity
    return Amounts(cpu=most["cpu"] or 0, memory=most["memory"] or 0, fgpu=fgpu, sessions=1)
