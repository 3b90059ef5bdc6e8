"""The room kept for the head of a group's queue, so that those behind it may pass but never delay it. Pure.

EASY backfill on devices: the head's start is reserved on one host at the earliest time at which it fits there once
those who run have reached their bounds. Whoever ends by then may use that host; others only what the head will not
need.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from scheduler.core.group_capacity import GroupCapacity
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.types import EPOCH, HostView, RunningSession, SessionRequest, Shape, Shares

SessionEnd = tuple[datetime, str, RunningSession]  # when it ends at the latest; its id, which makes each different; who


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A host kept for the head: from `at`, as `shadow` says it will be then; or, without a time, wholly."""

    shape: Shape
    host: HostCapacity
    shadow: HostCapacity | None
    at: datetime | None
    refused: set[Shape] = field(default_factory=set)  # would delay the head, until a session there ends

    def admit(self, group: GroupCapacity, shape: Shape, ends_at: datetime | None) -> Shares | None:
        """Take `shape` from the kept host for a session that ends at `ends_at`, unless the head would be delayed."""
        host = self.host
        if self.at is None or self.shadow is None or not host.fits(shape):
            return None
        if ends_at is not None and ends_at <= self.at:
            return group.take(host, shape)
        if shape in self.refused:
            return None
        rest = shape.fgpu % host.gpu_capacity if shape.fgpu else 0
        for device in group.policy.devices(host, shape, rest) if rest else (0,):
            split = host.split(shape.fgpu, (device,))
            later = self.shadow.copy()
            later.take(shape, split)
            if later.fits(self.shape):
                self.shadow = later
                return group.take(host, shape, split)
        self.refused.add(shape)
        return None


def reserve(shape: Shape, group: GroupCapacity, ends: Iterable[SessionEnd], now: datetime) -> Reservation | None:
    """Return the earliest start of `shape` by the bounds in `ends`, ascending; None if bounds alone never free enough.

    Of several hosts that are ready at the same time it is the first, and so it stays in the passes until then.
    """
    by_host = {host.host_id: host for host in group.hosts}
    shadows: dict[int, HostCapacity] = {}
    for at, together in groupby(ends, key=lambda end: max(end[0], now)):
        touched = set()
        for _, _, running in together:
            host = by_host.get(running.host_id)
            if host is not None:
                shadow = shadows.get(host.index) or shadows.setdefault(host.index, host.copy())
                shadow.give(running.shape, running.shares)
                touched.add(host.index)
        ready = [index for index in touched if shadows[index].fits(shape)]
        if ready:
            first = min(ready)
            return Reservation(shape=shape, host=group.hosts[first], shadow=shadows[first], at=at)
    return None


def reserve_whole_host(
    head: SessionRequest,
    group: GroupCapacity,
    host_views: Sequence[HostView],
    started: Mapping[int, datetime],
    since: datetime,
) -> Reservation | None:
    """Return a host kept wholly for the head, or None if none could ever take it. `started`: last start by host id.

    It is one on which nothing has started since the hold began, or else not for the longest time: there the head starts
    as soon as those who run now have ended, and as nothing is placed there, the next pass finds it or a better one.
    Among those it is the one that lacks least.
    """
    shape = head.shape
    able = [
        (max(since, started.get(host.host_id, EPOCH)), *_lacking(host, shape), host.index)
        for host, view in zip(group.hosts, host_views, strict=True)
        if view.cpu >= shape.cpu
        and view.memory >= shape.memory
        and len(view.gpus) * host.gpu_capacity >= shape.fgpu
        and not shape.fgpu % host.granularity
    ]
    if not able:
        return None
    return Reservation(shape=shape, host=group.hosts[min(able)[-1]], shadow=None, at=None)


def _lacking(host: HostCapacity, shape: Shape) -> tuple[int, int, int]:
    return max(0, shape.fgpu - host.fgpu), max(0, shape.cpu - host.cpu), max(0, shape.memory - host.memory)
