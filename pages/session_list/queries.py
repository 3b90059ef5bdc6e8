"""Read-only queries for the list of sessions, each a constant number of database queries."""

from dataclasses import dataclass
from typing import Final

from django.db.models import Count, Q, QuerySet, Sum

from accounts.limits import FIELDS, Amounts, lesser, remaining
from accounts.models import User
from resources.models import Gpu, Host, HostStatus, ResourceGroup
from sessions.lifecycle import TABS, Tab
from sessions.models import GpuShare, Lease, Session
from sessions.usage import usage_of

SORTS: Final = {
    "created": ("created_at", "id"),
    "name": ("name", "id"),
    "status": ("status", "id"),
    "environment": ("image__environment", "image__version", "id"),
    "owner": ("owner__email", "id"),
}
DEFAULT_SORT: Final = "-created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The used part of a bar; `most` is None without a limit."""

    used: int
    most: int | None

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return self.most is not None and self.used >= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Usage of one resource: in the chosen group, and in all groups."""

    name: str
    here: Part
    everywhere: Part


def listed(user: User, tab: Tab, search: str, sort: str) -> QuerySet[Session]:
    """Return the sessions of a tab that match the search, sorted by `sort`, or by DEFAULT_SORT if that is unknown."""
    sessions = Session.objects.visible_to(user).filter(status__in=TABS[tab])
    if search:
        match = Q(name__icontains=search) | Q(pk__startswith=search.lower()) | Q(image__reference__icontains=search)
        match |= Q(image__environment__icontains=search) | Q(image__version__icontains=search)
        sessions = sessions.filter(match | Q(owner__email__icontains=search) if user.is_superuser else match)
    sign, key = ("-", sort[1:]) if sort.startswith("-") else ("", sort)
    if key not in SORTS:
        sign, key = "-", DEFAULT_SORT[1:]
    order = [f"{sign}{name}" for name in SORTS[key]]
    related = sessions.select_related("owner__policy", "image", "resource_group", "host", "lease")
    return related.prefetch_related("lease__shares__gpu", "mounts").order_by(*order)


def tab_counts(user: User) -> dict[Tab, int]:
    """Return the number of sessions in each tab for this user; one query."""
    counts = {tab.value: Count("pk", filter=Q(status__in=statuses)) for tab, statuses in TABS.items()}
    found = Session.objects.visible_to(user).aggregate(**counts)
    return {tab: found[tab.value] for tab in TABS}


def free_in(group: ResourceGroup) -> Amounts:
    """Return the free amounts of the group's ready hosts together, without `sessions`. Four queries."""
    hosts = Host.objects.filter(group=group, status=HostStatus.READY, is_cordoned=False)
    total = hosts.aggregate(cpu=Sum("cpu", default=0), memory=Sum("memory", default=0))
    leases = Lease.objects.filter(host__in=hosts)
    taken = leases.aggregate(cpu=Sum("cpu", default=0), memory=Sum("memory", default=0))
    devices = Gpu.objects.filter(host__in=hosts, is_present=True)
    shares = GpuShare.objects.filter(gpu__in=devices).aggregate(milli=Sum("milli", default=0))["milli"]
    return Amounts(
        cpu=max(0, total["cpu"] - taken["cpu"]),
        memory=max(0, total["memory"] - taken["memory"]),
        fgpu=max(0, devices.count() * group.gpu_capacity - shares),
    )


def resource_bars(user: User, group: ResourceGroup) -> list[Bar]:
    """Return the bars of the session page: usage in `group` and in all groups. Six queries and the policy.

    The limit shown is the user's usage plus what is left in the policy or free in the group, whichever is less.
    """
    held, here, free = usage_of(user), usage_of(user, group), free_in(group)
    left = remaining(user.policy.limits(), held)
    bars = []
    for name in FIELDS:
        more = lesser(getattr(left, name), None if name == "sessions" else getattr(free, name))
        mine, mine_here = getattr(held, name), getattr(here, name)
        bars.append(
            Bar(
                name=name,
                here=Part(used=mine_here, most=None if more is None else mine_here + more),
                everywhere=Part(used=mine, most=None if more is None else mine + more),
            )
        )
    return bars
