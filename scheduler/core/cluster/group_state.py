"""Mutable state of one resource group: free capacity, running sessions, and the head's reservation. Pure."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from copy import copy as shallow_copy
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType

from scheduler.core.capacity.fragmentation import gpu_models
from scheduler.core.capacity.group_capacity import GroupCapacity
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.member_search import MemberSearch
from scheduler.core.capacity.placement_policy import PlacementPolicy, policy_for
from scheduler.core.cluster.reservation import (
    Overdue,
    Reservation,
    SessionEnd,
    could_hold,
    emptied,
    reserve,
    reserve_whole_hosts,
)
from scheduler.core.types import (
    GPU_MODEL_TRAIT,
    OVERDUE_GRACE,
    HostView,
    ImageHosts,
    Placement,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    entries_of,
    latest_end,
    member_placements,
)


class GroupState:
    """Hosts of one resource group, the sessions that run there, and the reservation of the queue's head."""

    def __init__(
        self,
        hosts: Iterable[HostView],
        rules: Rules,
        running: Sequence[RunningSession],
        queue: Iterable[SessionRequest],
        image_hosts: ImageHosts = MappingProxyType({}),
    ) -> None:
        """Take the group's hosts, in any order, and its running sessions.

        `queue` may hold requests of other groups too; it is read only by policies that learn the mix of requests.
        """
        self.host_views = sorted(hosts, key=lambda host: (host.name, host.id))
        self.rules = rules
        self.running = {session.session_id: session for session in running}
        capacities = [
            HostCapacity(
                host_id=view.id,
                index=index,
                cpu=view.cpu_free,
                memory_bytes=view.memory_free_bytes,
                gpus=view.gpus,
                divides=view.divides,
                traits=view.traits,
                closeness=view.closeness,
                topology=view.topology,
            )
            for index, view in enumerate(self.host_views)
        ]
        self.gpu_capacity = max(host.gpu_capacity for host in capacities)  # milli-fGPU of a whole GPU; 0 without
        self.divides = all(view.divides for view in self.host_views)  # whether every host divides its GPUs
        index_of = {host.host_id: host.index for host in capacities}
        self._image_hosts = {
            image_id: dict.fromkeys(sorted(index_of[host_id] for host_id in host_ids if host_id in index_of))
            for image_id, host_ids in image_hosts.items()
        }
        self._queue = queue
        self.capacity = GroupCapacity(capacities, self._policy())
        self.host_capacities = {host.host_id: host for host in capacities}
        self.head: SessionRequest | None = None
        self.reservation: Reservation | None = None
        self.ends_walked = 0  # to find starts of heads: what a forecast counts as work
        self._ends: list[SessionEnd] | None = None
        self._overdue: Overdue | None = None  # by host id; None: not looked for in this pass
        self._holdable: dict[Shape, bool] = {}  # as far as known
        self._emptied: list[HostCapacity] = []  # the hosts once all but overdue sessions have ended; [] if not known

    def mix(self) -> Sequence[tuple[Shape, int]]:
        """Return the usual requests with their counts: those of the rules, else the running and waiting ones.

        Of their traits, the GPU model alone.
        """
        running = [
            session.shape._replace(traits=(f"{GPU_MODEL_TRAIT}:{session.gpu_model}",) if session.gpu_model else ())
            for session in self.running.values()
        ]
        waiting = {  # the first entry of each: by GPU memory it has several
            request.id: request.shape._replace(traits=gpu_models(request.traits))
            for request in reversed(entries_of(self._queue))
            if request.group_id == self.host_views[0].group_id and request.members == 1
        }
        return self.rules.mix or [(shape, 1) for shape in (*running, *waiting.values())]

    def _policy(self) -> PlacementPolicy:
        return policy_for(self.rules, self.gpu_capacity, self.mix, self.host_views)

    def place(self, request: SessionRequest, now: datetime) -> tuple[Placement, ...]:
        """Take capacity for `request`, on a reserved host only if that does not delay the head.

        Return the placement of each member; () where it cannot start.
        """
        shape = request.shape
        if request.members > 1 and shape.spans_hosts:
            return self._place_members(request, shape, now)
        host = self.capacity.find(shape, request.avoided_host_ids)
        if host is not None:
            holders = self._image_hosts.get(request.image_id, ())
            if holders or host.closeness is not None:
                host = self.capacity.equal_of(host, shape, holders, request.avoided_host_ids)
            shares = self.capacity.take(host, shape)
            if request.members == 1:  # by far the most frequent case
                return (Placement(request.id, host.host_id, shares),)
            return member_placements(request, [(request.members, host.host_id, shares)])
        return self._backfill(request, shape, now)

    def _place_members(self, request: SessionRequest, shape: Shape, now: datetime) -> tuple[Placement, ...]:
        """As `place`, for a cluster that may span hosts: on reserved ones only as a whole."""
        found = self.capacity.find_members(shape, request.avoided_host_ids)
        if found:
            taken = [(part.members, host.host_id, self.capacity.take(host, part)) for host, part in found]
            return member_placements(request, taken)
        return self._backfill(request, shape, now) if shape.mode == "any" and not shape.pins else ()

    def _backfill(self, request: SessionRequest, shape: Shape, now: datetime) -> tuple[Placement, ...]:
        if self.reservation is None:
            return ()
        found = self.reservation.backfill(self.capacity, shape, self.latest_end(request, now))
        return () if found is None else member_placements(request, [(request.members, found[0].host_id, found[1])])

    def fits(self, shape: Shape) -> bool:
        """Return whether hosts that are not reserved have what a request needs."""
        return bool(self.capacity.find_members(shape)) if shape.spans_hosts else self.capacity.find(shape) is not None

    def may_place(self, request: SessionRequest) -> bool:
        """Return whether hosts have what the request needs, be they reserved for the head."""
        return (self.reservation is not None and self.reservation.fits(request.shape)) or self.fits(request.shape)

    def begin_pass(self, queue: Iterable[SessionRequest]) -> None:
        """Drop the reservation and rank the hosts anew, as in a new state with the capacities as they are."""
        self.start_over()
        self._queue = queue
        self.capacity = GroupCapacity(self.capacity.hosts, self._policy())

    def copy(self) -> "GroupState":
        """Return an independent copy with the same head and reservation."""
        copy = shallow_copy(self)
        hosts = [host.copy() for host in self.capacity.hosts]
        copy.capacity = GroupCapacity(hosts, self.capacity.policy)
        copy.host_capacities = {host.host_id: host for host in hosts}
        copy.running = self.running.copy()
        copy._ends = None if self._ends is None else self._ends.copy()
        if self.reservation is not None:
            copy.reservation = replace(self.reservation, parts=[part.copy(hosts) for part in self.reservation.parts])
        return copy

    def could_hold(self, shape: Shape, now: datetime) -> bool:
        """Return whether a host, or for a cluster all together, could take `shape` once the sessions there have ended.

        The overdue ones are taken to stay. Without such hosts nothing is reserved: it would keep from all others what
        they can have.
        """
        overdue = self._overdue_at(now)
        found = self._holdable.get(shape)
        if found is None:
            hosts = zip(self.capacity.hosts, self.host_views, strict=True)
            if shape.members > 1:
                if not self._emptied:
                    self._emptied = [emptied(host, view, overdue.get(view.id, ())) for host, view in hosts]
                if shape.spans_hosts:
                    found = bool(MemberSearch(shape, self._emptied).choose(shape.members, shape.mode))
                else:
                    found = any(host.fits(shape) for host in self._emptied)
            else:
                found = any(could_hold(host, view, shape, overdue.get(view.id, ())) for host, view in hosts)
            self._holdable[shape] = found
        return found

    def make_head(self, request: SessionRequest, now: datetime) -> None:
        """Reserve a host for the first request that does not fit, is within its limits and that a host could hold.

        Where time limits promise no start, it gets a whole host once it has waited for `reservation_delay`. No-op for
        a request that no host could hold. Another entry of the head takes its place if it can start sooner.
        """
        if not self.could_hold(request.shape, now):
            return
        known = self.head, self.reservation
        self.clear_head()
        self._reserve(request, now)
        if known[0] is not None and not _is_sooner(self.reservation, known[1]):
            self.clear_head()
            self.head, self.reservation = known
        for host in self.reserved_hosts:
            if not host.is_reserved:
                self.capacity.set_reserved(host, True)

    def _reserve(self, request: SessionRequest, now: datetime) -> None:
        self.head = request
        unknown = self._count_unknown(now)
        ends = islice(self.ends, unknown, None)
        self.reservation, walked = reserve(request.shape, self.capacity, ends, now)
        self.ends_walked += walked
        if self.reservation is None:
            self.move_whole_hosts(self.capacity.hosts, now)

    def is_head(self, request: SessionRequest) -> bool:
        """Return whether this very entry is the head: others of its session differ in what its host has."""
        return self.head is not None and self.head.id == request.id and self.head.traits == request.traits

    @property
    def reserved_hosts(self) -> list[HostCapacity]:
        """The hosts that are reserved for the head."""
        return [] if self.reservation is None else self.reservation.hosts

    def move_whole_hosts(self, grown: Iterable[HostCapacity], now: datetime) -> list[HostCapacity]:
        """Reserve as a whole the best hosts for a head without a promised start; return those not reserved any more.

        `grown` are the hosts where sessions have ended since they were chosen: no other can have become better.
        """
        assert self.head is not None
        since, were = self.head.queued_at + self.rules.reservation_delay, self.reserved_hosts
        if since > now:
            return []
        is_narrow = bool(were) and not self.head.shape.spans_hosts
        among = {host.index: host for host in (*were, *grown)}.values() if is_narrow else self.capacity.hosts
        views = [(host, self.host_views[host.index]) for host in among]
        self.reservation = reserve_whole_hosts(self.head, views, self.running.values(), since, self._overdue_at(now))
        self.ends_walked += len(self.running) // 64  # of which each takes a fraction of what an end takes
        new = self.reserved_hosts
        for host in new:
            if host not in were:
                self.capacity.set_reserved(host, True)
        released = [host for host in were if host not in new]
        for host in released:
            self.capacity.set_reserved(host, False)
        return released

    def start_over(self) -> None:
        """Drop the head, as at the start of a pass; which sessions are overdue is found out anew."""
        self.clear_head()
        self._overdue = None

    def clear_head(self) -> None:
        """Drop the head and its reservation."""
        for host in self.reserved_hosts:
            self.capacity.set_reserved(host, False)
        self.head = self.reservation = None

    @property
    def ends(self) -> list[SessionEnd]:
        """Latest ends of the bounded running sessions, ascending; computed on first use, then kept up to date."""
        if self._ends is None:
            self._ends = sorted((run.ends_at, run.session_id, run) for run in self.running.values() if run.ends_at)
        return self._ends

    def latest_end(self, request: SessionRequest, now: datetime) -> datetime | None:
        """Return when what the request would hold is free again at the latest, if it is placed now; None: unknown."""
        return latest_end(request, now, self.rules)

    def predict_ends(self, predict: Callable[[RunningSession], datetime | None]) -> None:
        """As in `ClusterState`; no start allowance is added to what is predicted of those that start from now on."""
        self.clear_head()
        self.running = {
            name: session if (end := predict(session)) is None else session._replace(ends_at=end)
            for name, session in self.running.items()
        }
        self._ends = None
        self.rules = replace(self.rules, overhead=timedelta())

    def forget_unknown_ends(self, now: datetime) -> None:
        """Take sessions that are overdue beyond the grace as unbounded, for good: for copies that are consumed."""
        self._overdue_at(now)
        del self.ends[: self._count_unknown(now)]

    def _overdue_at(self, now: datetime) -> Overdue:
        """Return the sessions of which nobody knows whether they ever end, by host id, as at the start of the pass."""
        if self._overdue is None:
            self._overdue = {}
            for _, _, session in self.ends[: self._count_unknown(now)]:
                self._overdue.setdefault(session.host_id, []).append(session)
            self._holdable, self._emptied = {}, []
        return self._overdue

    def _count_unknown(self, now: datetime) -> int:
        """Return how many of `ends`, from the front, are overdue beyond the grace: nothing says when those end."""
        return bisect_left(self.ends, (now - OVERDUE_GRACE,))

    def note_running(self, session: RunningSession) -> None:
        """Add a running session whose capacity has been taken."""
        self.running[session.session_id] = session
        if self._ends is not None and session.ends_at is not None:
            insort(self._ends, (session.ends_at, session.session_id, session))

    def add_running(self, session: RunningSession) -> None:
        """Add a running session and take its capacity."""
        self.note_running(session)
        host = self.host_capacities[session.host_id]
        host.give_back(session.shape, session.shares, -1)
        self.capacity.note_change(host)
        self._count_in_shadow(session, -1)

    def end(self, session_id: str) -> RunningSession:
        """Remove a running session, free its capacity, and return it."""
        session = self.running.pop(session_id)
        if self._ends is not None and session.ends_at is not None:
            del self._ends[bisect_left(self._ends, (session.ends_at, session_id))]
        host = self.host_capacities.get(session.host_id)
        if host is not None:
            self.capacity.give_back(host, session.shape, session.shares)
            self._count_in_shadow(session, 1)
        return session

    def _count_in_shadow(self, session: RunningSession, sign: int) -> None:
        """Count a session that ended (1) or started (-1) in what is free at the head's start, if it lasts longer."""
        if self.reservation is None:
            return
        at = self.reservation.at
        for part in self.reservation.parts:
            if part.host.host_id == session.host_id:
                part.refused.clear()
                is_later = session.ends_at is None or at is None or session.ends_at > at
                if is_later and part.shadow is not None:
                    part.shadow.give_back(session.shape, session.shares, sign)


def _is_sooner(one: Reservation | None, other: Reservation | None) -> bool:
    """Return whether one promises a start, and the other none or a later one."""
    return one is not None and one.at is not None and (other is None or other.at is None or one.at < other.at)
