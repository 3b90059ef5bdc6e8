"""The room kept for the head of a group's queue, so that those behind it may pass but never delay it. Pure.

EASY backfill on devices: the head's start is reserved on one host at the earliest time at which it fits there once
those who run have reached their bounds. Whoever ends by then may use that host; others only what the head will not
need.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from scheduler.core.room import GroupRoom, Room
from scheduler.core.terms import EPOCH, HostView, Request, Running, Shape, Shares

End = tuple[datetime, str, Running]  # when it ends at the latest; its id, which makes each different; who


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A host kept for the head: from `at`, as `shadow` says it will be then; or, without a time, wholly."""

    shape: Shape
    room: Room
    shadow: Room | None
    at: datetime | None
    refused: set[Shape] = field(default_factory=set)  # would delay the head, until a session there ends

    def admit(self, group: GroupRoom, shape: Shape, ends_at: datetime | None) -> Shares | None:
        """Take `shape` from the kept host for a session that ends at `ends_at`, unless the head would be delayed."""
        room = self.room
        if self.at is None or self.shadow is None or not room.fits(shape):
            return None
        if ends_at is not None and ends_at <= self.at:
            return group.take(room, shape)
        if shape in self.refused:
            return None
        rest = shape.fgpu % room.capacity if shape.fgpu else 0
        for device in group.policy.devices(room, shape, rest) if rest else (0,):
            split = room.split(shape.fgpu, (device,))
            later = self.shadow.copy()
            later.take(shape, split)
            if later.fits(self.shape):
                self.shadow = later
                return group.take(room, shape, split)
        self.refused.add(shape)
        return None


def reserve(shape: Shape, group: GroupRoom, ends: Iterable[End], now: datetime) -> Reservation | None:
    """Return the earliest start of `shape` by the bounds in `ends`, ascending; None if bounds alone never free enough.

    Of several hosts that are ready at the same time it is the first, and so it stays in the passes until then.
    """
    by_host = {room.host_id: room for room in group.rooms}
    shadows: dict[int, Room] = {}
    for at, together in groupby(ends, key=lambda end: max(end[0], now)):
        touched = set()
        for _, _, running in together:
            room = by_host.get(running.host_id)
            if room is not None:
                shadow = shadows.get(room.index) or shadows.setdefault(room.index, room.copy())
                shadow.give(running.shape, running.shares)
                touched.add(room.index)
        ready = [index for index in touched if shadows[index].fits(shape)]
        if ready:
            first = min(ready)
            return Reservation(shape=shape, room=group.rooms[first], shadow=shadows[first], at=at)
    return None


def hold(
    head: Request, group: GroupRoom, hosts: Sequence[HostView], started: Mapping[int, datetime], since: datetime
) -> Reservation | None:
    """Return a host kept wholly for the head, or None if none could ever take it. `started`: last start by host id.

    It is one on which nothing has started since the hold began, or else not for the longest time: there the head starts
    as soon as those who run now have ended, and as nothing is placed there, the next pass finds it or a better one.
    Among those it is the one that lacks least.
    """
    shape = head.shape
    able = [
        (max(since, started.get(room.host_id, EPOCH)), *_lacking(room, shape), room.index)
        for room, host in zip(group.rooms, hosts, strict=True)
        if host.cpu >= shape.cpu
        and host.memory >= shape.memory
        and len(host.gpus) * room.capacity >= shape.fgpu
        and not shape.fgpu % room.grain
    ]
    if not able:
        return None
    return Reservation(shape=shape, room=group.rooms[min(able)[-1]], shadow=None, at=None)


def _lacking(room: Room, shape: Shape) -> tuple[int, int, int]:
    return max(0, shape.fgpu - room.fgpu), max(0, shape.cpu - room.cpu), max(0, shape.memory - room.memory)
