"""Mutable state of all resource groups while sessions are placed and end: capacity, limits, reservations. Pure.

A pass changes it once; forecast and simulation go on with it through time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy as shallow_copy
from datetime import datetime
from itertools import chain

from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.reservation import could_hold
from scheduler.core.queue.fair_share import FairShares
from scheduler.core.queue.order import DEFAULT
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import (
    Association,
    DecayedUsage,
    HostView,
    Placed,
    Placement,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
    member_placements,
)


class ClusterState:
    """State of every group of a snapshot, and the remaining limits of users and projects."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Set up the state of `snapshot`."""
        self.limits = HolderLimits(snapshot.owners, snapshot.projects)
        self._shares: dict[int, FairShares] = {}  # of fair groups, once asked for
        self._used, self._weights = dict(snapshot.used), snapshot.weights
        self.groups: dict[int, GroupState] = {}
        self.closed_groups = snapshot.closed_groups
        self.trait_names = snapshot.trait_names
        self.outlooks = snapshot.outlooks
        self._outside_groups: dict[str, RunningSession] = {}  # on hosts that take no sessions now
        members: dict[int, list[HostView]] = {}
        for host in snapshot.hosts:
            members.setdefault(host.group_id, []).append(host)
        self.group_of = {host.id: host.group_id for host in snapshot.hosts}
        running_in: dict[int, list[RunningSession]] = {}
        for session in snapshot.running:
            group_id = self.group_of.get(session.host_id)
            if group_id is None:
                self._outside_groups[session.session_id] = session
            else:
                running_in.setdefault(group_id, []).append(session)
        for group_id, hosts in members.items():
            rules = snapshot.rules.get(group_id, DEFAULT)
            here = running_in.get(group_id, ())
            self.groups[group_id] = GroupState(hosts, rules, here, snapshot.queue, snapshot.image_hosts)

    def copy(self) -> "ClusterState":
        """Return an independent copy."""
        copy = shallow_copy(self)
        copy.limits = self.limits.copy()
        copy._used = self._used | self._used_now()
        copy._shares = {}
        copy.groups = {group_id: group.copy() for group_id, group in self.groups.items()}
        copy._outside_groups = self._outside_groups.copy()
        return copy

    @property
    def has_ends(self) -> bool:
        """Whether any running session is bounded."""
        return any(group.ends for group in self.groups.values())

    @property
    def running_count(self) -> int:
        """Number of running sessions on hosts that take some."""
        return sum(len(group.running) for group in self.groups.values())

    def is_behind_head(self, request: SessionRequest) -> bool:
        """Return whether another session is the head of the request's group."""
        group = self.groups.get(request.group_id)
        return group is not None and group.head is not None and group.head.id != request.id

    def add_running(self, session: RunningSession) -> None:
        """Add a running session, whoever placed it: take its capacity and count it against limits."""
        self.limits.count(session, -1)
        group_id = self.group_of.get(session.host_id)
        if group_id is None:
            self._outside_groups[session.session_id] = session
            return
        self.groups[group_id].add_running(session)
        if group_id in self._shares:
            self._shares[group_id].add(session)

    def remove_running(self, session: RunningSession) -> None:
        """Remove a running session, on whatever host, and free what it held."""
        group_id = self.group_of.get(session.host_id)
        if group_id is not None:
            self.end(group_id, session.session_id)
        else:
            del self._outside_groups[session.session_id]
            self.limits.count(session, 1)

    def running_sessions(self) -> Iterable[RunningSession]:
        """Yield all running sessions, on whatever host."""
        return chain(self._outside_groups.values(), *(group.running.values() for group in self.groups.values()))

    def place(self, request: SessionRequest, now: datetime) -> tuple[Placement, ...]:
        """Start a request within its limits if that does not delay its group's head; return its members' placements.

        A request that cannot start becomes the head of its group if there is none, and has no placements. Of a session
        by GPU memory, which has several entries in the group, the one that can start first is the head.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            return ()
        placements = group.place(request, now)
        if group.head is None:
            if not placements:
                group.make_head(request, now)
        elif group.head.id == request.id:
            if placements:
                group.clear_head()
            elif not group.is_head(request):
                group.make_head(request, now)
        for each in placements:
            session = _started(request, each, group, now)
            self.limits.count(session, -1)
            group.note_running(session)
            if self._shares and request.group_id in self._shares:
                self._shares[request.group_id].add(session)
        return placements

    def start_at(self, request: SessionRequest, placed: Sequence[Placed], now: datetime) -> tuple[Placement, ...]:
        """Start a request on hosts, with shares, that are known to be free; return its members' placements."""
        group = self.groups[self.group_of[placed[0][1]]]
        placements = member_placements(request, placed)
        for each in placements:
            self.add_running(_started(request, each, group, now))
        return placements

    def covers(self, session: RunningSession, later: Iterable[RunningSession] = ()) -> bool:
        """Return whether all that a session holds is there, by whoever else holds something; those in `later` aside."""
        group_id = self.group_of.get(session.host_id)
        if group_id is None:
            return False
        host = self.groups[group_id].host_capacities[session.host_id].copy()
        for other in later:
            if other.host_id == session.host_id:
                host.give_back(other.shape, other.shares)
        return host.covers(session.shares)

    def could_hold(self, placed: Placed, shape: Shape, *, with_main: bool = False) -> bool:
        """Return whether the host could take so many members of `shape` if it were empty, and has these devices.

        `with_main` says that the first of all is among them.
        """
        members, host_id, shares = placed
        group_id = self.group_of.get(host_id)
        if group_id is None:
            return False
        group = self.groups[group_id]
        host = group.host_capacities[host_id]
        are_present = {gpu_id for gpu_id, _ in shares}.issubset(host.gpu_ids)
        return are_present and could_hold(
            host, group.host_views[host.index], shape.of_members(members, with_main=with_main)
        )

    def predict_ends(self, predict: Callable[[RunningSession], datetime | None]) -> None:
        """Have sessions end when they are predicted to, those of which nothing is known at their limits: for copies."""
        for group in self.groups.values():
            group.predict_ends(predict)

    def clear_reservations(self) -> None:
        """Drop all reservations, as at the start of a pass."""
        for group in self.groups.values():
            group.start_over()

    def end(self, group_id: int, session_id: str, ended_at: datetime | None = None) -> RunningSession:
        """End a session of a group: free its capacity, and what it counted against limits.

        With `ended_at`, what it has used by then counts on in fair share; without, as if it had not been.
        """
        session = self.groups[group_id].end(session_id)
        self.limits.count(session, 1)
        if group_id in self._shares:
            self._shares[group_id].remove(session, ended_at)
        return session

    def fair_shares(self, group_id: int) -> FairShares | None:
        """Return the use of a group by users and projects; None for groups without hosts."""
        group = self.groups.get(group_id)
        if group is not None and group_id not in self._shares:
            used = {holder: usage for (pool, holder), usage in self._used.items() if pool == group_id}
            running = group.running.values()
            self._shares[group_id] = FairShares(group.host_views, group.rules, running, used, self._weights)
        return self._shares.get(group_id)

    def set_used(self, used: Mapping[tuple[int, Association], DecayedUsage]) -> None:
        """Replace what ended sessions have used, of these groups by these associations."""
        self._used.update(used)
        for (group_id, holder), usage in used.items():
            if group_id in self._shares:
                self._shares[group_id].set_used(holder, usage)

    def _used_now(self) -> dict[tuple[int, Association], DecayedUsage]:
        """Return what ended sessions have used, those included that ended in this state."""
        return {
            (group_id, holder): usage
            for group_id, shares in self._shares.items()
            for holder, usage in shares.used.items()
        }


def _started(request: SessionRequest, placement: Placement, group: GroupState, now: datetime) -> RunningSession:
    """Return the session that a request, or a member of it, has become by its placement."""
    session_id, host_id, shares = placement
    cpu, memory_bytes, _ = request.amounts_of(session_id)
    return RunningSession(  # keywords would take half as long again
        session_id,
        request.owner_id,
        host_id,
        cpu,
        memory_bytes,
        shares,
        now,
        group.latest_end(request, now),
        request.project_id,
        request.charge_percent,
        False,  # not preemptible until it is read again
        "",
        request.core_milli,
        request.id if request.members > 1 else "",
        request.beside is not None,
        request.image_id,
        request.stem,
    )
