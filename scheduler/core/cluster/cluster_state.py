"""Mutable state of all resource groups while sessions are placed and end: capacity, limits, reservations. Pure.

A pass changes it once; forecast and simulation go on with it through time.
"""

from collections.abc import Iterable, Mapping
from copy import copy as shallow_copy
from datetime import datetime
from itertools import chain

from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.reservation import could_hold
from scheduler.core.queue.fair_share import FairShares
from scheduler.core.queue.order import DEFAULT
from scheduler.core.queue.remaining_limits import UNLIMITED, RemainingLimits
from scheduler.core.types import (
    Association,
    DecayedUsage,
    HostView,
    LimitHolder,
    Placement,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
)


class ClusterState:
    """State of every group of a snapshot, and the remaining limits of users and projects."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Set up the state of `snapshot`."""
        self._users = {owner_id: RemainingLimits(holder) for owner_id, holder in snapshot.owners.items()}
        self._projects = {project_id: RemainingLimits(holder) for project_id, holder in snapshot.projects.items()}
        self._shares: dict[int, FairShares] = {}  # of fair groups, once asked for
        self._used, self._weights = dict(snapshot.used), snapshot.weights
        self.groups: dict[int, GroupState] = {}
        self.closed_groups = snapshot.closed_groups
        self.trait_names = snapshot.trait_names
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
        copy._users = {owner_id: shallow_copy(remaining) for owner_id, remaining in self._users.items()}
        copy._projects = {project_id: shallow_copy(remaining) for project_id, remaining in self._projects.items()}
        copy._used = self._used | self._used_now()
        copy._shares = {}
        copy.groups = {group_id: group.copy() for group_id, group in self.groups.items()}
        copy._outside_groups = self._outside_groups.copy()
        return copy

    @property
    def has_ends(self) -> bool:
        """Whether any running session is bounded."""
        return any(group.ends for group in self.groups.values())

    def add_holder(self, owner_id: int, holder: LimitHolder) -> None:
        """Add a user whom the snapshot did not name."""
        self._users[owner_id] = RemainingLimits(holder)

    def knows_holder(self, owner_id: int) -> bool:
        """Return whether the limits of a user are known."""
        return owner_id in self._users

    def add_project(self, project_id: int, holder: LimitHolder) -> None:
        """Add a project that the snapshot did not name."""
        self._projects[project_id] = RemainingLimits(holder)

    def knows_project(self, project_id: int) -> bool:
        """Return whether the limits of a project are known."""
        return project_id in self._projects

    def add_running(self, session: RunningSession) -> None:
        """Add a running session, whoever placed it: take its capacity and count it against limits."""
        self._count(session, -1)
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
            self._count(session, 1)

    def running_sessions(self) -> Iterable[RunningSession]:
        """Yield all running sessions, on whatever host."""
        return chain(self._outside_groups.values(), *(group.running.values() for group in self.groups.values()))

    def limits_of(self, owner_id: int, project_id: int | None) -> tuple[RemainingLimits, ...]:
        """Return the remaining limits that apply to a session, the user's first; without those that are unknown."""
        found = self.user_limits(owner_id), None if project_id is None else self.project_limits(project_id)
        return tuple(remaining for remaining in found if remaining is not None)

    def user_limits(self, owner_id: int) -> RemainingLimits | None:
        """Return the remaining limits of a user; None if they are unknown."""
        return self._users.get(owner_id)

    def project_limits(self, project_id: int) -> RemainingLimits | None:
        """Return the remaining limits of a project; None if they are unknown."""
        return self._projects.get(project_id)

    def has_limits(self, owner_id: int, project_id: int | None) -> bool:
        """Return whether any limit applies to a session of this user and project."""
        return any(remaining.limits != UNLIMITED for remaining in self.limits_of(owner_id, project_id))

    def _count(self, session: RunningSession, sign: int) -> None:
        """Count a session that ended (1) or started (-1) in the limits that apply to it."""
        user = self._users.get(session.owner_id)
        if user is not None:
            user.add(session, sign)
        project = None if session.project_id is None else self._projects.get(session.project_id)
        if project is not None:
            project.add(session, sign)

    def exceeds_limit(self, request: SessionRequest) -> bool:
        """Return whether limits forbid the request now."""
        remaining = self._users.get(request.owner_id)
        if remaining is not None and remaining.are_exceeded_by(request):
            return True
        if request.project_id is None:
            return False
        remaining = self._projects.get(request.project_id)
        return remaining is not None and remaining.are_exceeded_by(request)

    def place(self, request: SessionRequest, now: datetime) -> Placement | None:
        """Start a request within its limits if that does not delay its group's head; return its placement.

        A request that cannot start becomes the head of its group if there is none.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            return None
        placement = group.place(request, request.shape, now)
        if placement is None:
            if group.head is None:
                group.make_head(request, now)
            return None
        session = _started(request, placement, group, now)
        self._count(session, -1)
        group.note_running(session)
        if self._shares and request.group_id in self._shares:
            self._shares[request.group_id].add(session)
        return placement

    def start_at(self, request: SessionRequest, placement: Placement, now: datetime) -> None:
        """Start a request on a host, with shares, that are known to be free."""
        group = self.groups[self.group_of[placement.host_id]]
        self.add_running(_started(request, placement, group, now))

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

    def could_hold(self, session: RunningSession, shape: Shape) -> bool:
        """Return whether the host of a session could take `shape` if it were empty, and has the session's devices."""
        group_id = self.group_of.get(session.host_id)
        if group_id is None:
            return False
        group = self.groups[group_id]
        host = group.host_capacities[session.host_id]
        are_present = {gpu_id for gpu_id, _ in session.shares}.issubset(host.gpu_ids)
        return are_present and could_hold(host, group.host_views[host.index], shape)

    def clear_reservations(self) -> None:
        """Drop all reservations, as at the start of a pass."""
        for group in self.groups.values():
            group.start_over()

    def end(self, group_id: int, session_id: str, ended_at: datetime | None = None) -> RunningSession:
        """End a session of a group: free its capacity, and what it counted against limits.

        With `ended_at`, what it has used by then counts on in fair share; without, as if it had not been.
        """
        session = self.groups[group_id].end(session_id)
        self._count(session, 1)
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
    """Return the session that a request has become by its placement."""
    return RunningSession(
        request.id,
        request.owner_id,
        placement.host_id,
        request.cpu,
        request.memory_bytes,
        placement.shares,
        now,
        group.latest_end(request, now),
        request.project_id,
        request.charge_percent,
        core_milli=request.core_milli,
    )
