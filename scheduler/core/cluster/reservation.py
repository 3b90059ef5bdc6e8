"""Reservation for the head of a group's queue: requests behind it may start earlier but never delay it. Pure.

EASY backfill (Lifka 1995), applied to devices: the head's start is reserved on one host, at the earliest time at which
it fits there if running sessions use their time limits to the full. Requests that end by then may use that host;
others may use what the head will not need.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from scheduler.core.capacity.group_capacity import GroupCapacity
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import EPOCH, GpuView, HostView, RunningSession, SessionRequest, Shape, Shares

SessionEnd = tuple[datetime, str, RunningSession]  # latest end; the session's id, which makes entries distinct
Overdue = dict[int, list[RunningSession]]  # by host id: nobody knows whether they ever end


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A host reserved for the head: from `at`, with `shadow` its free capacity then; without a time, as a whole."""

    shape: Shape
    host: HostCapacity
    shadow: HostCapacity | None
    at: datetime | None
    refused: set[Shape] = field(default_factory=set)  # shapes that would delay the head, until a session there ends

    def backfill(self, group: GroupCapacity, shape: Shape, ends_at: datetime | None) -> Shares | None:
        """Take `shape` from the reserved host and return the shares; None if that would delay the head.

        `ends_at` is the latest end of the session to be started, None if it is unbounded.
        """
        host = self.host
        if self.at is None or self.shadow is None or not host.fits(shape):
            return None
        if ends_at is not None and ends_at <= self.at:
            return group.take(host, shape)
        if shape in self.refused:
            return None
        part = shape.fgpu_milli % host.gpu_capacity if shape.fgpu_milli else 0
        for device in group.policy.devices(host, shape, part) if part else (0,):
            split = host.split(shape.fgpu_milli, (device,))
            later = self.shadow.copy()
            later.take(shape, split)
            if later.fits(self.shape):
                self.shadow = later
                return group.take(host, shape, split)
        self.refused.add(shape)
        return None


def reserve(
    shape: Shape, group: GroupCapacity, ends: Iterable[SessionEnd], now: datetime
) -> tuple[Reservation | None, int]:
    """Return the earliest start of `shape` by the ends of running sessions, given ascending; None if it never fits.

    The second value is the number of ends that were looked at. Of several hosts that fit at the same time it takes the
    lowest index, so that later passes find the same one.
    """
    by_host = {host.host_id: host for host in group.hosts}
    shadows: dict[int, HostCapacity] = {}
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
        ready = [index for index in touched if shadows[index].fits(shape)]
        if ready:
            first = min(ready)
            return Reservation(shape=shape, host=group.hosts[first], shadow=shadows[first], at=at), walked
    return None, walked


def reserve_whole_host(
    head: SessionRequest,
    among: Sequence[tuple[HostCapacity, HostView]],
    running: Iterable[RunningSession],
    since: datetime,
    overdue: Mapping[int, Sequence[RunningSession]],
) -> Reservation | None:
    """Return a reservation of a whole host for the head, or None if none of these hosts could ever take it.

    `since` is when the reservation fell due. The host is one without a start since then, or else the one whose last
    start is longest ago: the head starts there once all who run now have ended, and since nothing is placed there, the
    next pass finds it or a better one. Among equal hosts it is the one that lacks least. What `overdue` sessions, by
    host id, hold does not count.
    """
    shape = head.shape
    last_starts = dict.fromkeys((view.id for _, view in among), EPOCH)
    for session in running:
        last = last_starts.get(session.host_id)
        if last is not None and session.started_at > last:
            last_starts[session.host_id] = session.started_at
    able = [
        ((max(since, last_starts[view.id]), *_missing(host, shape), host.index), host)
        for host, view in among
        if could_hold(host, view, shape, overdue.get(view.id, ()))
    ]
    if not able:
        return None
    return Reservation(shape=shape, host=min(able)[1], shadow=None, at=None)


def could_hold(host: HostCapacity, view: HostView, shape: Shape, overdue: Sequence[RunningSession] = ()) -> bool:
    """Return whether the host could take `shape` once all but the `overdue` sessions have ended there."""
    if overdue:
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
        return then.fits(shape)
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
