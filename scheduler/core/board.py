"""The state that changes while sessions are placed and end: room, what owners have left, reservations. Pure.

One pass uses a board once; the forecast and the simulator go on with it through time.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from itertools import chain
from math import inf
from typing import Final

from accounts.limits import PolicyLimits
from scheduler.core.order import DEFAULT
from scheduler.core.reservation import End, Reservation, hold, reserve
from scheduler.core.room import GroupRoom, Room
from scheduler.core.terms import EPOCH, HostView, Owner, Placement, Request, Rules, Running, Shape, Snapshot
from scheduler.core.where import policy_for

UNLIMITED: Final = PolicyLimits()
SHARE_UNIT: Final = 10**9  # shares of a group are compared in billionths


class Allowance:
    """What a holder of limits may still take; without a limit, endlessly much."""

    __slots__ = ("cpu", "fgpu", "limits", "memory", "sessions")

    def __init__(self, owner: Owner) -> None:
        """Take what the limits leave beside what is held; below zero where limits were lowered."""
        limits, used = owner.limits, owner.used
        self.limits: PolicyLimits = limits
        self.cpu = inf if limits.cpu is None else limits.cpu - used.cpu
        self.memory = inf if limits.memory is None else limits.memory - used.memory
        self.fgpu = inf if limits.fgpu is None else limits.fgpu - used.fgpu
        self.sessions = inf if limits.sessions is None else limits.sessions - used.sessions

    def bars(self, request: Request | Shape) -> bool:
        """Say whether the limits forbid one more session of this size now."""
        return self.sessions < 1 or self.cpu < request.cpu or self.memory < request.memory or self.fgpu < request.fgpu

    def add(self, shape: Shape, sign: int) -> None:
        """Count a session that ended (1) or started (-1)."""
        self.cpu += sign * shape.cpu
        self.memory += sign * shape.memory
        self.fgpu += sign * shape.fgpu
        self.sessions += sign


class Group:
    """The hosts of one resource group, who runs there, and the reservation of its head."""

    def __init__(
        self, hosts: Iterable[HostView], rules: Rules, running: Sequence[Running], queue: Iterable[Request]
    ) -> None:
        """Take the group's hosts, which stand by name, then id, whatever their order was, who runs there, who waits.

        `queue` may hold others too, and is looked at only where the policy minds who waits.
        """
        self.hosts = sorted(hosts, key=lambda host: (host.name, host.id))
        self.rules = rules
        self.running = {one.session_id: one for one in running}
        rooms = [
            Room(
                host_id=host.id,
                index=index,
                cpu=host.cpu_free,
                memory=host.memory_free,
                gpus=host.gpus,
                divides=host.divides,
            )
            for index, host in enumerate(self.hosts)
        ]
        self.capacity = max(room.capacity for room in rooms)
        self.divides = all(host.divides for host in self.hosts)  # into parts what devices they have
        self._queue = queue
        self.room = GroupRoom(rooms, policy_for(rules, self.capacity, self.mix))
        self.by_host = {room.host_id: room for room in rooms}
        self.head: Request | None = None
        self.reservation: Reservation | None = None
        self._ends: list[End] | None = None

    def mix(self) -> Sequence[tuple[Shape, int]]:
        """Return the usual requests: as the rules say, or else those of who runs and waits here."""
        seen = [running.shape for running in self.running.values()] + [
            request.shape for request in self._queue if request.group_id == self.hosts[0].group_id
        ]
        return self.rules.mix or [(shape, 1) for shape in seen]

    def seat(self, request: Request, shape: Shape, now: datetime) -> Placement | None:
        """Take room for `request` where it fits best, or on the reserved host if that delays nobody."""
        room = self.room.find(shape, request.avoided_host_id)
        if room is not None:
            return Placement(request.id, room.host_id, self.room.take(room, shape))
        if self.reservation is not None:
            ends_at = None if request.duration is None else now + request.duration
            shares = self.reservation.admit(self.room, shape, ends_at)
            if shares is not None:
                return Placement(request.id, self.reservation.room.host_id, shares)
        return None

    def renew(self, queue: Iterable[Request]) -> None:
        """Begin a new pass: all is as on a new board with the rooms as they are now, those in `queue` waiting."""
        self.clear_head()
        self._queue = queue
        self.room = GroupRoom(self.room.rooms, policy_for(self.rules, self.capacity, self.mix))

    def twin(self) -> "Group":
        """Return a group that changes by itself, with the same head."""
        twin = copy(self)
        rooms = [room.copy() for room in self.room.rooms]
        twin.room = GroupRoom(rooms, self.room.policy)
        twin.by_host = {room.host_id: room for room in rooms}
        twin.running = self.running.copy()
        twin._ends = None if self._ends is None else self._ends.copy()
        kept = self.reservation
        if kept is not None:
            shadow = kept.shadow and kept.shadow.copy()
            twin.reservation = replace(kept, room=rooms[kept.room.index], shadow=shadow, refused=kept.refused.copy())
        return twin

    def make_head(self, request: Request, now: datetime) -> None:
        """Keep a host for the first that does not fit and is not limited; without bounds, once its hold began."""
        self.head = request
        self.reservation = reserve(request.shape, self.room, self.ends, now)
        since = request.queued_at + self.rules.hold_after
        if self.reservation is None and since <= now:
            started: dict[int, datetime] = {}
            for running in self.running.values():
                started[running.host_id] = max(running.started_at, started.get(running.host_id, EPOCH))
            self.reservation = hold(request, self.room, self.hosts, started, since)
        if self.reservation is not None:
            self.room.set_closed(self.reservation.room, True)

    def clear_head(self) -> None:
        """Forget the reservation: a new pass begins."""
        if self.reservation is not None:
            self.room.set_closed(self.reservation.room, False)
        self.head = self.reservation = None

    @property
    def ends(self) -> list[End]:
        """The bounds of those who run, ascending; kept up to date once asked for."""
        if self._ends is None:
            self._ends = sorted((run.ends_at, run.session_id, run) for run in self.running.values() if run.ends_at)
        return self._ends

    def begin(self, running: Running) -> None:
        """Note a session that holds its room already."""
        self.running[running.session_id] = running
        if self._ends is not None and running.ends_at is not None:
            insort(self._ends, (running.ends_at, running.session_id, running))

    def hold(self, running: Running) -> None:
        """Note a session that runs already, and take its room."""
        self.begin(running)
        room = self.by_host[running.host_id]
        room.give(running.shape, running.shares, -1)
        self.room.touch(room)

    def end(self, session_id: str) -> Running:
        """Take back what a session held, and return it."""
        running = self.running.pop(session_id)
        if self._ends is not None and running.ends_at is not None:
            del self._ends[bisect_left(self._ends, (running.ends_at, session_id))]
        room = self.by_host.get(running.host_id)
        if room is not None:
            self.room.give(room, running.shape, running.shares)
            if self.reservation is not None and self.reservation.room is room:
                self.reservation.refused.clear()
        return running


class Board:
    """Every group of the snapshot, and what users and projects may still take."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Set up the state of `snapshot`."""
        self._users = {owner_id: Allowance(owner) for owner_id, owner in snapshot.owners.items()}
        self._projects = {project_id: Allowance(owner) for project_id, owner in snapshot.projects.items()}
        self._shares: dict[int, _Shares] = {}
        self.groups: dict[int, Group] = {}
        self.closed_groups = snapshot.closed_groups
        self._elsewhere: dict[str, Running] = {}  # on hosts that take no sessions now
        members: dict[int, list[HostView]] = {}
        for host in snapshot.hosts:
            members.setdefault(host.group_id, []).append(host)
        self.group_of = {host.id: host.group_id for host in snapshot.hosts}
        runners: dict[int, list[Running]] = {}
        for running in snapshot.running:
            group_id = self.group_of.get(running.host_id)
            if group_id is None:
                self._elsewhere[running.session_id] = running
            else:
                runners.setdefault(group_id, []).append(running)
        for group_id, hosts in members.items():
            rules = snapshot.rules.get(group_id, DEFAULT)
            self.groups[group_id] = Group(hosts, rules, runners.get(group_id, ()), snapshot.queue)

    def twin(self) -> "Board":
        """Return a board that changes by itself."""
        twin = copy(self)
        twin._users = {owner_id: copy(allowance) for owner_id, allowance in self._users.items()}
        twin._projects = {project_id: copy(allowance) for project_id, allowance in self._projects.items()}
        twin._shares = {}
        twin.groups = {group_id: group.twin() for group_id, group in self.groups.items()}
        twin._elsewhere = self._elsewhere.copy()
        return twin

    @property
    def has_ends(self) -> bool:
        """Say whether anybody who runs has a bound."""
        return any(group.ends for group in self.groups.values())

    def admit(self, owner_id: int, owner: Owner) -> None:
        """Take in a user whom the snapshot did not name."""
        self._users[owner_id] = Allowance(owner)

    def knows(self, owner_id: int) -> bool:
        """Say whether the limits of a user are known."""
        return owner_id in self._users

    def hold(self, running: Running) -> None:
        """Note a session that runs, whoever placed it: its room is taken, and counts against limits."""
        self._count(running.owner_id, running.project_id, running.shape, -1)
        group_id = self.group_of.get(running.host_id)
        if group_id is None:
            self._elsewhere[running.session_id] = running
            return
        self.groups[group_id].hold(running)
        if group_id in self._shares:
            self._shares[group_id].add(running.owner_id, running.shape, 1)

    def drop(self, running: Running) -> None:
        """Forget a session that runs, wherever: what it held is free again."""
        group_id = self.group_of.get(running.host_id)
        if group_id is not None:
            self.end(group_id, running.session_id)
        else:
            del self._elsewhere[running.session_id]
            self._count(running.owner_id, running.project_id, running.shape, 1)

    def everyone(self) -> Iterable[Running]:
        """Yield who runs, on whatever host."""
        return chain(self._elsewhere.values(), *(group.running.values() for group in self.groups.values()))

    def holders(self, owner_id: int, project_id: int | None) -> tuple[Allowance, ...]:
        """Return whose limits bind a session, the user's first; nobody's for users that the snapshot does not name."""
        found = self._users.get(owner_id), None if project_id is None else self._projects.get(project_id)
        return tuple(allowance for allowance in found if allowance is not None)

    def limits_any(self, owner_id: int, project_id: int | None) -> bool:
        """Say whether anything binds a session of these holders."""
        return any(holder.limits != UNLIMITED for holder in self.holders(owner_id, project_id))

    def _count(self, owner_id: int, project_id: int | None, shape: Shape, sign: int) -> None:
        """Give back (1) or take (-1) what the limits of a session's holders allow."""
        user = self._users.get(owner_id)
        if user is not None:
            user.add(shape, sign)
        project = None if project_id is None else self._projects.get(project_id)
        if project is not None:
            project.add(shape, sign)

    def bars(self, request: Request) -> bool:
        """Say whether limits forbid the request now."""
        allowance = self._users.get(request.owner_id)
        if allowance is not None and allowance.bars(request):
            return True
        if request.project_id is None:
            return False
        allowance = self._projects.get(request.project_id)
        return allowance is not None and allowance.bars(request)

    def seat(self, request: Request, now: datetime) -> Placement | None:
        """Start a request that limits allow, if it fits without delaying its group's head; else it may become it."""
        group = self.groups.get(request.group_id)
        if group is None:
            return None
        shape = Shape(request.cpu, request.memory, request.fgpu)
        seat = group.seat(request, shape, now)
        if seat is None:
            if group.head is None:
                group.make_head(request, now)
            return None
        self._count(request.owner_id, request.project_id, shape, -1)
        ends_at = None if request.duration is None else now + request.duration
        cpu, memory, _ = shape
        group.begin(
            Running(
                request.id, request.owner_id, seat.host_id, cpu, memory, seat.shares, now, ends_at, request.project_id
            )
        )
        if self._shares and request.group_id in self._shares:
            self._shares[request.group_id].add(request.owner_id, shape, 1)
        return seat

    def could_start(self, request: Request) -> bool:
        """Say whether the request would start now behind all who were served, on a host that is kept for nobody."""
        group = self.groups.get(request.group_id)
        if group is None or self.bars(request):
            return False
        return group.room.find(request.shape, request.avoided_host_id) is not None

    def clear_heads(self) -> None:
        """Begin a new pass: reservations are made anew."""
        for group in self.groups.values():
            group.clear_head()

    def end(self, group_id: int, session_id: str) -> Running:
        """End a session of a group: what it held is free again, for its owners too."""
        running = self.groups[group_id].end(session_id)
        self._count(running.owner_id, running.project_id, running.shape, 1)
        if group_id in self._shares:
            self._shares[group_id].add(running.owner_id, running.shape, -1)
        return running

    def share(self, group_id: int, owner_id: int) -> int:
        """Return the user's dominant share: the largest part, in billionths, that they hold of anything of it."""
        if group_id not in self.groups:
            return 0
        if group_id not in self._shares:
            self._shares[group_id] = _Shares(self.groups[group_id])
        return self._shares[group_id].dominant(owner_id)


class _Shares:
    """What each user holds of a group; kept only for groups that are shared fairly."""

    def __init__(self, group: Group) -> None:
        hosts = group.hosts
        self._totals = Shape(
            sum(host.cpu for host in hosts),
            sum(host.memory for host in hosts),
            sum(len(host.gpus) for host in hosts) * group.capacity,
        )
        self._held: dict[int, list[int]] = {}
        for running in group.running.values():
            self.add(running.owner_id, running.shape, 1)

    def add(self, owner_id: int, shape: Shape, sign: int) -> None:
        held = self._held.setdefault(owner_id, [0, 0, 0])
        for place, amount in enumerate(shape):
            held[place] += sign * amount

    def dominant(self, owner_id: int) -> int:
        held = self._held.get(owner_id, (0, 0, 0))
        parts = (part * SHARE_UNIT // total for part, total in zip(held, self._totals, strict=True) if total)
        return max(parts, default=0)
