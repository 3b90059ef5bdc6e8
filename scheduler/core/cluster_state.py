"""The state that changes while sessions are placed and end: room, what owners have left, reservations. Pure.

One pass uses a board once; the forecast and the simulator go on with it through time.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from copy import copy as shallow_copy
from dataclasses import replace
from datetime import datetime
from itertools import chain
from math import inf
from typing import Final

from accounts.limits import PolicyLimits
from scheduler.core.group_capacity import GroupCapacity
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.placement_policy import policy_for
from scheduler.core.queue_order import DEFAULT
from scheduler.core.reservation import Reservation, SessionEnd, reserve, reserve_whole_host
from scheduler.core.types import (
    EPOCH,
    HostView,
    LimitHolder,
    Placement,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
)

UNLIMITED: Final = PolicyLimits()
DOMINANT_SHARE_SCALE: Final = 10**9  # shares of a group are compared in billionths


class RemainingLimits:
    """What a holder of limits may still take; without a limit, endlessly much."""

    __slots__ = ("cpu", "fgpu", "limits", "memory", "sessions")

    def __init__(self, owner: LimitHolder) -> None:
        """Take what the limits leave beside what is held; below zero where limits were lowered."""
        limits, used = owner.limits, owner.used
        self.limits: PolicyLimits = limits
        self.cpu = inf if limits.cpu is None else limits.cpu - used.cpu
        self.memory = inf if limits.memory is None else limits.memory - used.memory
        self.fgpu = inf if limits.fgpu is None else limits.fgpu - used.fgpu
        self.sessions = inf if limits.sessions is None else limits.sessions - used.sessions

    def exceeds_limit(self, request: SessionRequest | Shape) -> bool:
        """Say whether the limits forbid one more session of this size now."""
        return self.sessions < 1 or self.cpu < request.cpu or self.memory < request.memory or self.fgpu < request.fgpu

    def add(self, shape: Shape, sign: int) -> None:
        """Count a session that ended (1) or started (-1)."""
        self.cpu += sign * shape.cpu
        self.memory += sign * shape.memory
        self.fgpu += sign * shape.fgpu
        self.sessions += sign


class GroupState:
    """The hosts of one resource group, who runs there, and the reservation of its head."""

    def __init__(
        self,
        hosts: Iterable[HostView],
        rules: Rules,
        running: Sequence[RunningSession],
        queue: Iterable[SessionRequest],
    ) -> None:
        """Take the group's hosts, which stand by name, then id, whatever their order was, who runs there, who waits.

        `queue` may hold others too, and is looked at only where the policy minds who waits.
        """
        self.host_views = sorted(hosts, key=lambda host: (host.name, host.id))
        self.rules = rules
        self.running = {one.session_id: one for one in running}
        capacities = [
            HostCapacity(
                host_id=host.id,
                index=index,
                cpu=host.cpu_free,
                memory=host.memory_free,
                gpus=host.gpus,
                divides=host.divides,
            )
            for index, host in enumerate(self.host_views)
        ]
        self.gpu_capacity = max(host.gpu_capacity for host in capacities)
        self.divides = all(host.divides for host in self.host_views)  # into parts what devices they have
        self._queue = queue
        self.capacity = GroupCapacity(capacities, policy_for(rules, self.gpu_capacity, self.mix))
        self.host_capacities = {host.host_id: host for host in capacities}
        self.head: SessionRequest | None = None
        self.reservation: Reservation | None = None
        self._ends: list[SessionEnd] | None = None

    def mix(self) -> Sequence[tuple[Shape, int]]:
        """Return the usual requests: as the rules say, or else those of who runs and waits here."""
        seen = [running.shape for running in self.running.values()] + [
            request.shape for request in self._queue if request.group_id == self.host_views[0].group_id
        ]
        return self.rules.mix or [(shape, 1) for shape in seen]

    def place(self, request: SessionRequest, shape: Shape, now: datetime) -> Placement | None:
        """Take room for `request` where it fits best, or on the reserved host if that delays nobody."""
        host = self.capacity.find(shape, request.avoided_host_id)
        if host is not None:
            return Placement(request.id, host.host_id, self.capacity.take(host, shape))
        if self.reservation is not None:
            ends_at = None if request.duration is None else now + request.duration
            shares = self.reservation.admit(self.capacity, shape, ends_at)
            if shares is not None:
                return Placement(request.id, self.reservation.host.host_id, shares)
        return None

    def begin_pass(self, queue: Iterable[SessionRequest]) -> None:
        """Begin a new pass: all is as on a new board with the rooms as they are now, those in `queue` waiting."""
        self.clear_head()
        self._queue = queue
        self.capacity = GroupCapacity(self.capacity.hosts, policy_for(self.rules, self.gpu_capacity, self.mix))

    def copy(self) -> "GroupState":
        """Return a group that changes by itself, with the same head."""
        copy = shallow_copy(self)
        hosts = [host.copy() for host in self.capacity.hosts]
        copy.capacity = GroupCapacity(hosts, self.capacity.policy)
        copy.host_capacities = {host.host_id: host for host in hosts}
        copy.running = self.running.copy()
        copy._ends = None if self._ends is None else self._ends.copy()
        state = self.reservation
        if state is not None:
            shadow = state.shadow and state.shadow.copy()
            copy.reservation = replace(state, host=hosts[state.host.index], shadow=shadow, refused=state.refused.copy())
        return copy

    def make_head(self, request: SessionRequest, now: datetime) -> None:
        """Keep a host for the first that does not fit and is not limited; without bounds, once its hold began."""
        self.head = request
        self.reservation = reserve(request.shape, self.capacity, self.ends, now)
        since = request.queued_at + self.rules.reservation_delay
        if self.reservation is None and since <= now:
            started: dict[int, datetime] = {}
            for running in self.running.values():
                started[running.host_id] = max(running.started_at, started.get(running.host_id, EPOCH))
            self.reservation = reserve_whole_host(request, self.capacity, self.host_views, started, since)
        if self.reservation is not None:
            self.capacity.set_reserved(self.reservation.host, True)

    def clear_head(self) -> None:
        """Forget the reservation: a new pass begins."""
        if self.reservation is not None:
            self.capacity.set_reserved(self.reservation.host, False)
        self.head = self.reservation = None

    @property
    def ends(self) -> list[SessionEnd]:
        """The bounds of those who run, ascending; kept up to date once asked for."""
        if self._ends is None:
            self._ends = sorted((run.ends_at, run.session_id, run) for run in self.running.values() if run.ends_at)
        return self._ends

    def note_running(self, running: RunningSession) -> None:
        """Note a session that holds its room already."""
        self.running[running.session_id] = running
        if self._ends is not None and running.ends_at is not None:
            insort(self._ends, (running.ends_at, running.session_id, running))

    def add_running(self, running: RunningSession) -> None:
        """Note a session that runs already, and take its room."""
        self.note_running(running)
        host = self.host_capacities[running.host_id]
        host.give(running.shape, running.shares, -1)
        self.capacity.note_change(host)

    def end(self, session_id: str) -> RunningSession:
        """Take back what a session held, and return it."""
        running = self.running.pop(session_id)
        if self._ends is not None and running.ends_at is not None:
            del self._ends[bisect_left(self._ends, (running.ends_at, session_id))]
        host = self.host_capacities.get(running.host_id)
        if host is not None:
            self.capacity.give(host, running.shape, running.shares)
            if self.reservation is not None and self.reservation.host is host:
                self.reservation.refused.clear()
        return running


class ClusterState:
    """Every group of the snapshot, and what users and projects may still take."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Set up the state of `snapshot`."""
        self._users = {owner_id: RemainingLimits(owner) for owner_id, owner in snapshot.owners.items()}
        self._projects = {project_id: RemainingLimits(owner) for project_id, owner in snapshot.projects.items()}
        self._shares: dict[int, _GroupShares] = {}
        self.groups: dict[int, GroupState] = {}
        self.closed_groups = snapshot.closed_groups
        self._outside_groups: dict[str, RunningSession] = {}  # on hosts that take no sessions now
        members: dict[int, list[HostView]] = {}
        for host in snapshot.hosts:
            members.setdefault(host.group_id, []).append(host)
        self.group_of = {host.id: host.group_id for host in snapshot.hosts}
        runners: dict[int, list[RunningSession]] = {}
        for running in snapshot.running:
            group_id = self.group_of.get(running.host_id)
            if group_id is None:
                self._outside_groups[running.session_id] = running
            else:
                runners.setdefault(group_id, []).append(running)
        for group_id, hosts in members.items():
            rules = snapshot.rules.get(group_id, DEFAULT)
            self.groups[group_id] = GroupState(hosts, rules, runners.get(group_id, ()), snapshot.queue)

    def copy(self) -> "ClusterState":
        """Return a board that changes by itself."""
        copy = shallow_copy(self)
        copy._users = {owner_id: shallow_copy(allowance) for owner_id, allowance in self._users.items()}
        copy._projects = {project_id: shallow_copy(allowance) for project_id, allowance in self._projects.items()}
        copy._shares = {}
        copy.groups = {group_id: group.copy() for group_id, group in self.groups.items()}
        copy._outside_groups = self._outside_groups.copy()
        return copy

    @property
    def has_ends(self) -> bool:
        """Say whether anybody who runs has a bound."""
        return any(group.ends for group in self.groups.values())

    def add_holder(self, owner_id: int, owner: LimitHolder) -> None:
        """Take in a user whom the snapshot did not name."""
        self._users[owner_id] = RemainingLimits(owner)

    def knows_holder(self, owner_id: int) -> bool:
        """Say whether the limits of a user are known."""
        return owner_id in self._users

    def add_running(self, running: RunningSession) -> None:
        """Note a session that runs, whoever placed it: its room is taken, and counts against limits."""
        self._count(running.owner_id, running.project_id, running.shape, -1)
        group_id = self.group_of.get(running.host_id)
        if group_id is None:
            self._outside_groups[running.session_id] = running
            return
        self.groups[group_id].add_running(running)
        if group_id in self._shares:
            self._shares[group_id].add(running.owner_id, running.shape, 1)

    def remove_running(self, running: RunningSession) -> None:
        """Forget a session that runs, wherever: what it held is free again."""
        group_id = self.group_of.get(running.host_id)
        if group_id is not None:
            self.end(group_id, running.session_id)
        else:
            del self._outside_groups[running.session_id]
            self._count(running.owner_id, running.project_id, running.shape, 1)

    def running_sessions(self) -> Iterable[RunningSession]:
        """Yield who runs, on whatever host."""
        return chain(self._outside_groups.values(), *(group.running.values() for group in self.groups.values()))

    def limits_of(self, owner_id: int, project_id: int | None) -> tuple[RemainingLimits, ...]:
        """Return whose limits bind a session, the user's first; nobody's for users that the snapshot does not name."""
        found = self._users.get(owner_id), None if project_id is None else self._projects.get(project_id)
        return tuple(allowance for allowance in found if allowance is not None)

    def has_limits(self, owner_id: int, project_id: int | None) -> bool:
        """Say whether anything binds a session of these holders."""
        return any(holder.limits != UNLIMITED for holder in self.limits_of(owner_id, project_id))

    def _count(self, owner_id: int, project_id: int | None, shape: Shape, sign: int) -> None:
        """Give back (1) or take (-1) what the limits of a session's holders allow."""
        user = self._users.get(owner_id)
        if user is not None:
            user.add(shape, sign)
        project = None if project_id is None else self._projects.get(project_id)
        if project is not None:
            project.add(shape, sign)

    def exceeds_limit(self, request: SessionRequest) -> bool:
        """Say whether limits forbid the request now."""
        allowance = self._users.get(request.owner_id)
        if allowance is not None and allowance.exceeds_limit(request):
            return True
        if request.project_id is None:
            return False
        allowance = self._projects.get(request.project_id)
        return allowance is not None and allowance.exceeds_limit(request)

    def place(self, request: SessionRequest, now: datetime) -> Placement | None:
        """Start a request that limits allow, if it fits without delaying its group's head; else it may become it."""
        group = self.groups.get(request.group_id)
        if group is None:
            return None
        shape = Shape(request.cpu, request.memory, request.fgpu)
        place = group.place(request, shape, now)
        if place is None:
            if group.head is None:
                group.make_head(request, now)
            return None
        self._count(request.owner_id, request.project_id, shape, -1)
        ends_at = None if request.duration is None else now + request.duration
        cpu, memory, _ = shape
        group.note_running(
            RunningSession(
                request.id, request.owner_id, place.host_id, cpu, memory, place.shares, now, ends_at, request.project_id
            )
        )
        if self._shares and request.group_id in self._shares:
            self._shares[request.group_id].add(request.owner_id, shape, 1)
        return place

    def could_start(self, request: SessionRequest) -> bool:
        """Say whether the request would start now behind all who were served, on a host that is kept for nobody."""
        group = self.groups.get(request.group_id)
        if group is None or self.exceeds_limit(request):
            return False
        return group.capacity.find(request.shape, request.avoided_host_id) is not None

    def clear_heads(self) -> None:
        """Begin a new pass: reservations are made anew."""
        for group in self.groups.values():
            group.clear_head()

    def end(self, group_id: int, session_id: str) -> RunningSession:
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
            self._shares[group_id] = _GroupShares(self.groups[group_id])
        return self._shares[group_id].dominant(owner_id)


class _GroupShares:
    """What each user holds of a group; kept only for groups that are shared fairly."""

    def __init__(self, group: GroupState) -> None:
        hosts = group.host_views
        self._totals = Shape(
            sum(host.cpu for host in hosts),
            sum(host.memory for host in hosts),
            sum(len(host.gpus) for host in hosts) * group.gpu_capacity,
        )
        self._blocked: dict[int, list[int]] = {}
        for running in group.running.values():
            self.add(running.owner_id, running.shape, 1)

    def add(self, owner_id: int, shape: Shape, sign: int) -> None:
        held = self._blocked.setdefault(owner_id, [0, 0, 0])
        for place, amount in enumerate(shape):
            held[place] += sign * amount

    def dominant(self, owner_id: int) -> int:
        held = self._blocked.get(owner_id, (0, 0, 0))
        parts = (part * DOMINANT_SHARE_SCALE // total for part, total in zip(held, self._totals, strict=True) if total)
        return max(parts, default=0)
