"""Reservation for the head of a group's queue: requests behind it may start earlier but never delay it. Pure.

EASY backfill (Lifka 1995), applied to devices: the head's start is reserved on one host, at the earliest time at which
it fits there if running sessions use their time limits to the full. Requests that end by then may use that host;
others may use what the head will not need. For a cluster that may span hosts several are reserved, at the earliest time
at which all its members fit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from scheduler.core.capacity.group_capacity import GroupCapacity
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.member_search import MemberSearch
from scheduler.core.capacity.placement_policy import split_of
from scheduler.core.types import EPOCH, GpuView, HostView, RunningSession, SessionRequest, Shape, Shares

SessionEnd = tuple[datetime, str, RunningSession]  # latest end; the session's id, which makes entries distinct
Overdue = dict[int, list[RunningSession]]  # by host id: nobody knows whether they ever end


@dataclass(slots=True, kw_only=True)
class HostReservation:
    """What is reserved on one host: room for `shape`; `shadow` is its free capacity once that is needed.

    Without a shadow the host is reserved as a whole.
    """

    shape: Shape
    host: HostCapacity
    shadow: HostCapacity | None
    refused: set[Shape] = field(default_factory=set)  # shapes that would delay the head, until a session there ends

    def copy(self, hosts: Sequence[HostCapacity]) -> "HostReservation":
        """Return a copy on the copies of all hosts."""
        shadow = self.shadow and self.shadow.copy()
        return HostReservation(
            shape=self.shape, host=hosts[self.host.index], shadow=shadow, refused=self.refused.copy()
        )

    def backfill(self, group: GroupCapacity, shape: Shape, *, is_over: bool) -> Shares | None:
        """Take `shape` from the host and return the shares; None if that would delay the head.

        `is_over` says that what is started ends before the head starts.
        """
        host = self.host
        if self.shadow is None or not host.fits(shape):
            return None
        if is_over:
            return group.take(host, shape)
        if shape in self.refused:
            return None
        for split in _splits(group, host, shape):
            later = self.shadow.copy()
            later.take(shape, split)
            if later.fits(self.shape):
                self.shadow = later
                return group.take(host, shape, split)
        self.refused.add(shape)
        return None


@dataclass(slots=True, kw_only=True)
class Reservation:
    """Hosts reserved for the head from a time on, or without a time as a whole: several where the head spans hosts."""

    at: datetime | None
    parts: Sequence[HostReservation]

    @property
    def hosts(self) -> list[HostCapacity]:
        """The hosts, those first on which members of lower rank are placed."""
        return [part.host for part in self.parts]

    def fits(self, shape: Shape) -> bool:
        """Return whether one of the hosts has room for `shape` now."""
        for part in self.parts:  # noqa: SIM110  # a generator would take longer than all the rest
            if part.host.fits(shape):
                return True
        return False

    def backfill(
        self, group: GroupCapacity, shape: Shape, ends_at: datetime | None
    ) -> tuple[HostCapacity, Shares] | None:
        """Take `shape` from a reserved host; return both, or None if that would delay the head.

        `ends_at` is the latest end of the session to be started, None if it is unbounded.
        """
        if self.at is None:
            return None
        is_over = ends_at is not None and ends_at <= self.at
        for part in self.parts:
            shares = part.backfill(group, shape, is_over=is_over)
            if shares is not None:
                return part.host, shares
        return None


def _splits(group: GroupCapacity, host: HostCapacity, shape: Shape) -> Iterable[dict[int, int]]:
    """Yield the ways in which a shape that fits can be divided over the devices of a host, the preferred first."""
    part = shape.fgpu_milli % host.gpu_capacity if shape.fgpu_milli and shape.members == 1 else 0
    if not part:
        yield split_of(group.policy, host, shape)
        return
    for device in group.policy.devices(host, shape, part):
        yield host.split(shape.fgpu_milli, (device,))


def reserve(
    shape: Shape, group: GroupCapacity, ends: Iterable[SessionEnd], now: datetime
) -> tuple[Reservation | None, int]:
    """Return the earliest start of `shape` by the ends of running sessions, given ascending; None if it never fits.

    The second value is the number of ends that were looked at. Of several hosts that fit at the same time it takes the
    lowest index, so that later passes find the same one.
    """
    by_host = {host.host_id: host for host in group.hosts}
    shadows: dict[int, HostCapacity] = {}
    search = MemberSearch(shape, group.hosts) if shape.spans_hosts else None
    walked = 0
    for at, together in groupby(ends, key=lambda end: max(end[0], now)):
        touched = set()
        for _, _, running in together:
            walked += 1
            host = by_host.get(running.host_id)
            if host is not None:
                shadow = shadows.get(host.index) or shadows.setdefault(host.index, host.copy())
                shadow.give_back(running.shape, running.shares)
                touched.add(host.index)
        if search is not None:
            for index in touched:
                search.update(shadows[index])
            chosen = search.choose(shape.members, shape.mode)
        else:
            chosen = [(1, index) for index in sorted(touched) if shadows[index].fits(shape)][:1]
        if chosen:
            parts = [
                HostReservation(
                    shape=shape if search is None else shape.of_members(count, with_main=not place),
                    host=group.hosts[index],
                    shadow=shadows.get(index) or group.hosts[index].copy(),
                )
                for place, (count, index) in enumerate(chosen)
            ]
            return Reservation(at=at, parts=parts), walked
    return None, walked


def reserve_whole_hosts(
    head: SessionRequest,
    among: Sequence[tuple[HostCapacity, HostView]],
    running: Iterable[RunningSession],
    since: datetime,
    overdue: Mapping[int, Sequence[RunningSession]],
) -> Reservation | None:
    """Return a reservation of whole hosts for the head, or None if these hosts could never take it.

    `since` is when the reservation fell due. The host is one without a start since then, or else the one whose last
    start is longest ago: the head starts there once all who run now have ended, and since nothing is placed there, the
    next pass finds it or a better one. Among equal hosts it is the one that lacks least. What `overdue` sessions, by
    host id, hold does not count. A head that spans hosts gets as many of them, in this order, as it needs.
    """
    shape, one = head.shape, head.shape.of_members(1) if head.shape.spans_hosts else head.shape
    kinds = {one, shape.of_members(1, with_main=True)} if shape.spans_hosts and shape.main else {one}
    last_starts = dict.fromkeys((view.id for _, view in among), EPOCH)
    for session in running:
        last = last_starts.get(session.host_id)
        if last is not None and session.started_at > last:
            last_starts[session.host_id] = session.started_at
    able = sorted(
        ((max(since, last_starts[view.id]), *_missing(host, one), host.index), host, view)
        for host, view in among
        if any(could_hold(host, view, kind, overdue.get(view.id, ())) for kind in kinds)
    )
    if not shape.spans_hosts:
        chosen = [host for _, host, _ in able[:1]]
    else:
        chosen = _enough(shape, [(host, emptied(host, view, overdue.get(view.id, ()))) for _, host, view in able])
    parts = [HostReservation(shape=one, host=host, shadow=None) for host in chosen]
    return Reservation(at=None, parts=parts) if parts else None


def _enough(shape: Shape, able: Iterable[tuple[HostCapacity, HostCapacity]]) -> list[HostCapacity]:
    """Return the first of the hosts, of equal GPU model, that take a cluster once they are empty; none if they do not.

    Each comes with its capacity by then.
    """
    if shape.main:
        return _enough_with_main(shape, able)
    found: dict[str, list[HostCapacity]] = {}
    members: Counter[str] = Counter()
    for host, empty in able:
        count = empty.member_count(shape.of_members(1), shares_gpus=shape.shares_gpus)
        if not (count := min(count, shape.most_on(host.host_id))):
            continue
        model = host.gpu_model if shape.fgpu_milli else ""
        found.setdefault(model, []).append(host)
        members[model] += count
        if members[model] >= shape.members:
            return found[model]
    return []


def _enough_with_main(shape: Shape, able: Iterable[tuple[HostCapacity, HostCapacity]]) -> list[HostCapacity]:
    """As `_enough`, for a first member with amounts of its own; without those of the hosts that are not needed."""
    search, hosts = MemberSearch(shape), dict[int, HostCapacity]()
    for host, empty in able:
        hosts[host.index] = host
        search.update(empty)
        if chosen := search.choose(shape.members, shape.mode):
            return [hosts[index] for _, index in chosen]
    return []


def emptied(host: HostCapacity, view: HostView, overdue: Sequence[RunningSession] = ()) -> HostCapacity:
    """Return a host once all but the `overdue` sessions have ended there."""
    then = HostCapacity(
        host_id=view.id,
        index=host.index,
        cpu=view.cpu,
        memory_bytes=view.memory_bytes,
        gpus=[GpuView(gpu.id, gpu.capacity_milli, gpu.capacity_milli) for gpu in view.gpus],
        divides=view.divides,
        traits=view.traits,
    )
    for session in overdue:
        then.give_back(session.shape, session.shares, -1)
    return then


def could_hold(host: HostCapacity, view: HostView, shape: Shape, overdue: Sequence[RunningSession] = ()) -> bool:
    """Return whether the host could take `shape` once all but the `overdue` sessions have ended there."""
    if overdue or shape.members > 1:
        return emptied(host, view, overdue).fits(shape)
    return (
        view.cpu >= shape.cpu
        and view.memory_bytes >= shape.memory_bytes
        and len(view.gpus) * host.gpu_capacity >= shape.fgpu_milli
        and not shape.fgpu_milli % host.granularity_milli
        and host.traits.issuperset(shape.traits)
    )


def _missing(host: HostCapacity, shape: Shape) -> tuple[int, int, int]:
    """Return the milli-fGPU, cores and bytes that the host lacks for `shape` now."""
    return (
        max(0, shape.fgpu_milli - host.max_request_milli),
        max(0, shape.cpu - host.cpu),
        max(0, shape.memory_bytes - host.memory_bytes),
    )
