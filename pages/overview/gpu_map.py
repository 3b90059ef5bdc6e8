"""Hosts with their GPUs as bars of leases, as one viewer may see them. Constant numbers of queries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from resources.amounts.units import fgpu_text
from resources.gpus.tiers import GATED
from resources.models import Gpu, GpuReading, Host, HostStatus, ResourceGroup
from sessions.models import GpuShare, Session

STALE_AFTER: Final = timedelta(minutes=1)  # six readings


class HostState(StrEnum):
    """What the viewer is told of a host."""

    READY = "ready"
    JOINING = "joining"
    DRAINING = "draining"
    OUT = "out"
    LOST = "lost"


STATE_WORDS: Final[dict[HostState, Promise]] = {
    HostState.READY: gettext_lazy("Ready"),
    HostState.JOINING: gettext_lazy("Joining"),
    HostState.DRAINING: gettext_lazy("Leaving service"),
    HostState.OUT: gettext_lazy("Out of service"),
    HostState.LOST: gettext_lazy("Unreachable"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A lease on the bar of a device, in percent of its width."""

    kind: str  # mine or others
    x: str
    width: str
    label: str
    milli: int
    session: Session | None  # if the viewer may open it
    owner: str  # to superadmins


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBar:
    """A device and what is leased of it."""

    gpu: Gpu
    capacity: int  # milli-fGPU
    sharing: str  # what becomes of idle time; "" where no gate divides it
    segments: tuple[Segment, ...]
    reading: GpuReading | None
    is_stale: bool

    @property
    def held(self) -> int:
        """Milli-fGPU that sessions hold."""
        return sum(segment.milli for segment in self.segments)

    @property
    def free(self) -> int:
        """Milli-fGPU that nobody holds."""
        return max(0, self.capacity - self.held)

    @property
    def label(self) -> str:
        """The bar in words, for who does not see it."""
        mine = sum(segment.milli for segment in self.segments if segment.kind == "mine")
        texts = {"held": fgpu_text(self.held), "all": fgpu_text(self.capacity), "mine": fgpu_text(mine)}
        if mine:
            return _("%(held)s of %(all)s fGPU in use, %(mine)s mine") % texts
        return _("%(held)s of %(all)s fGPU in use") % texts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A host with its devices, and what sessions hold of it."""

    host: Host
    state: HostState
    cpu_held: int  # thousandths of a core
    memory_held: int
    session_count: int
    bars: tuple[GpuBar, ...]
    faulty: tuple[Gpu, ...]  # that are lent to nobody

    @property
    def state_words(self) -> Promise:
        """The state, in words."""
        return STATE_WORDS[self.state]


def rows_of(hosts: QuerySet[Host] | Iterable[Host], viewer: User) -> list[HostRow]:
    """Return the hosts, which `with_map` has prepared, as the viewer may see them."""
    return [_row(host, viewer) for host in hosts]


def with_map(hosts: QuerySet[Host]) -> QuerySet[Host]:
    """Return the hosts with all that a map shows; four queries once they are read."""
    shares = GpuShare.objects.select_related("lease__session__owner").order_by("pk")
    gpus = Gpu.objects.exclude(is_present=False, problem="").select_related("reading").order_by("index", "pk")
    return hosts.select_related("group", "health").prefetch_related(
        Prefetch("gpus", gpus.prefetch_related(Prefetch("shares", shares))), "leases"
    )


def _row(host: Host, viewer: User) -> HostRow:
    leases = list(host.leases.all())
    return HostRow(
        host=host,
        state=state_of(host, is_empty=not leases),
        cpu_held=sum(lease.cpu * lease.core_milli for lease in leases),
        memory_held=sum(lease.memory for lease in leases),
        session_count=len(leases),
        bars=tuple(_bar(gpu, host.group, viewer) for gpu in host.gpus.all() if gpu.is_present),
        faulty=tuple(gpu for gpu in host.gpus.all() if not gpu.is_present),
    )


def state_of(host: Host, *, is_empty: bool) -> HostState:
    """Return the state of a host; `is_empty` says that no session holds resources of it."""
    if host.status == HostStatus.LOST:
        return HostState.LOST
    if host.is_cordoned:
        return HostState.OUT if is_empty else HostState.DRAINING
    return HostState.READY if host.status == HostStatus.READY else HostState.JOINING


def _bar(gpu: Gpu, group: ResourceGroup, viewer: User) -> GpuBar:
    capacity = group.gpu_capacity
    reading: GpuReading | None = getattr(gpu, "reading", None)
    return GpuBar(
        gpu=gpu,
        capacity=capacity,
        sharing=group.sharing if gpu.tier in GATED else "",
        segments=tuple(_segments(gpu.shares.all(), capacity, viewer)),
        reading=reading,
        is_stale=reading is not None and reading.at < timezone.now() - STALE_AFTER,
    )


def _segments(shares: Iterable[GpuShare], capacity: int, viewer: User) -> Iterator[Segment]:
    """Yield the leases from the left, the viewer's own first."""
    x = 0
    for share in sorted(shares, key=lambda each: each.lease.session.owner_id != viewer.pk):
        session = share.lease.session
        is_mine = session.owner_id == viewer.pk
        may_open = is_mine or viewer.is_superuser
        amount = {"fgpu": fgpu_text(share.milli), "name": session.name, "owner": session.owner.email}
        label = _("%(fgpu)s fGPU, somebody else's") % amount
        if may_open:
            label = _("%(fgpu)s fGPU, %(name)s") % amount
        if may_open and not is_mine:
            label = _("%(fgpu)s fGPU, %(name)s of %(owner)s") % amount
        yield Segment(
            kind="mine" if is_mine else "others",
            x=_percent(x, capacity),
            width=_percent(share.milli, capacity),
            label=label,
            milli=share.milli,
            session=session if may_open else None,
            owner=session.owner.email if may_open and not is_mine else "",
        )
        x += share.milli


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3f}%"
