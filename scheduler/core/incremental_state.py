"""Incremental state: cluster state and wait queue from one pass to the next, the implementation that runs. Pure.

A pass places exactly what `placement.plan`, its specification, places on the whole state: the same requests in the same
order on the same devices. It evaluates few of them, since a refused request can start only if a host has gained
capacity, a limit no longer forbids it, or the reserved host is another, and waiting does not change which request is
first. In fair groups use changes with time, so those are served in full.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice, takewhile
from operator import gt
from types import MappingProxyType
from typing import Final

from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.placement import serve
from scheduler.core.provisioning import starts_on
from scheduler.core.queue.fair_share import FairShares
from scheduler.core.queue.order import DEFAULT, bonus_of, fair_sequence
from scheduler.core.types import (
    Association,
    Placement,
    QueueOrder,
    Rules,
    RunningSession,
    SessionRequest,
    Snapshot,
    Traits,
    association_of,
    entries_of,
)
from scheduler.core.waiting.forecast import StartEstimate, advance_through_ends
from scheduler.core.waiting.request_class import QueueKey
from scheduler.core.waiting.run_times import RunTimes
from scheduler.core.waiting.wait_queue import WaitQueue

MAX_ON_COMING: Final = 500  # requests of a queue, the first, that may be expected to start on hosts that come
FairKey = tuple[str, int, Traits]  # of an entry: its session, group, and what its host must have
MAX_BEFORE_HEAD: Final = 100  # requests of a queue among which `reserve` looks for one that does not fit


class IncrementalState:
    """Running sessions, waiting requests and reservations, as the last pass has left them."""

    def __init__(self, snapshot: Snapshot, ranks: Mapping[str, int] = MappingProxyType({})) -> None:
        """Begin with the state of a snapshot, whose requests are all new. Equals are served by rank, then by id."""
        self._rules = snapshot.rules
        self._ranks = ranks
        self.cluster = ClusterState(snapshot)
        self._queue = WaitQueue(self.cluster)
        self.requests: dict[str, SessionRequest] = {}
        self._fair: dict[FairKey, SessionRequest] = {}  # entries in fair groups
        self._fair_groups = {group for group, rules in snapshot.rules.items() if rules.queue_order == QueueOrder.FAIR}
        self._bonus: dict[tuple[int, int], timedelta] = {}  # by group and priority
        self._left: list[SessionRequest] = []  # requests of fair groups that still wait, in the order served last
        self._ordered: dict[int, list[SessionRequest]] = {}  # entries by group, until a request is added
        for request in snapshot.queue:
            self.add(request)

    def copy(self) -> "IncrementalState":
        """Return an independent copy; this one must have been served since it last changed."""
        copy = object.__new__(IncrementalState)
        copy._rules, copy._ranks = self._rules, self._ranks
        copy._fair_groups, copy._bonus = self._fair_groups, self._bonus
        copy.cluster = self.cluster.copy()
        copy._queue = self._queue.copy(copy.cluster)
        copy.requests, copy._fair, copy._left = self.requests.copy(), self._fair.copy(), self._left
        copy._ordered = {}
        return copy

    def add(self, request: SessionRequest) -> None:
        """Add a request to the queue."""
        self._ordered.clear()
        self.requests[request.id] = request
        for position, entry in enumerate((request, *request.alternatives)):
            if entry.group_id in self._fair_groups:
                self._fair[_fair_key(entry)] = entry
            else:
                self._queue.add(self._queue_key(entry, position), entry)

    def remove(self, session_id: str) -> None:
        """Remove a request from the queue, and what is reserved for it."""
        request = self.requests.pop(session_id)
        for position, entry in enumerate((request, *request.alternatives)):
            self._clear_head(entry.group_id, session_id)
            if entry.group_id in self._fair_groups:
                del self._fair[_fair_key(entry)]
            else:
                self._queue.remove(self._queue_key(entry, position), entry)

    def update(self, gone: Iterable[RunningSession], here: Iterable[RunningSession]) -> None:
        """Remove the running sessions that ended or changed, and add those that started or changed."""
        before: dict[int, tuple[int, int, int, int]] = {}
        for session in (*gone, *here):
            group_id = self.cluster.group_of.get(session.host_id)
            if group_id is not None:
                host = self.cluster.groups[group_id].host_capacities[session.host_id]
                amounts = host.cpu, host.memory_bytes, host.max_request_milli, host.total_free
                before.setdefault(session.host_id, amounts)
        for session in gone:
            self.cluster.remove_running(session)
        for session in here:
            self.cluster.add_running(session)
        for host_id, amounts in before.items():
            group_id = self.cluster.group_of[host_id]
            host = self.cluster.groups[group_id].host_capacities[host_id]
            now = host.cpu, host.memory_bytes, host.max_request_milli, host.total_free
            if any(map(gt, now, amounts)):
                self._queue.note_growth(group_id, host)
        self._queue.readmit(gone)

    def rules_of(self, group_id: int) -> Rules:
        """Return the scheduling rules of a group."""
        return self._rules.get(group_id, DEFAULT)

    def begin_pass(self) -> None:
        """Drop the reservations and rank the hosts anew: a state that has just been read is so."""
        for group_id, group in self.cluster.groups.items():
            if group.head is not None:
                self._clear_head(group_id, group.head.id)
            group.begin_pass(self.requests.values())

    def reserve(self, group_id: int, now: datetime) -> None:
        """Reserve a host of a group for the first request that does not fit now, where none is reserved."""
        group = self.cluster.groups[group_id]
        for request in self.in_order(group_id, now, MAX_BEFORE_HEAD) if group.head is None else ():
            if not self.cluster.limits.are_exceeded_by(request) and not group.fits(request.shape):
                group.make_head(request, now)
                if group.head is not None:
                    break

    def serve(self, now: datetime) -> list[Placement]:
        """Start the requests that can start, in order; they leave the queue. A cluster has a placement a member."""
        self.begin_pass()
        started = self._queue.serve(now)
        for entry, _ in started:
            if entry.alternatives or entry.is_alternative:
                self._leave_fair(entry.id)
        fair = sorted(self._fair.values(), key=self._queue_key)
        served, self._left = serve(self.cluster, fair, self._rules, now)
        for placement in served:
            if placement.session_id in self.requests:  # not so members of a cluster but the main one
                self._queue.withdraw(placement.session_id)
                self._leave_fair(placement.session_id)
        placements = [*chain.from_iterable(placed for _, placed in started), *served]
        for placement in placements:
            self.requests.pop(placement.session_id, None)
        return placements

    def ahead_of(self, session_id: str, now: datetime, group_id: int | None = None) -> list[SessionRequest]:
        """Return who is served before a request in a group, an entry each, in no order; without one, in its own."""
        if group_id is None:
            group_id = self.requests[session_id].group_id
        group = [entry for entry in entries_of(self.requests.values()) if entry.group_id == group_id]
        shares = self.fair_shares_of(group_id)
        if shares is None:
            key = next(self._queue_key(entry) for entry in group if entry.id == session_id)
            return [*{entry.id: entry for entry in group if self._queue_key(entry) < key}.values()]
        served = fair_sequence(sorted(group, key=self._queue_key), shares, now)
        return [*{entry.id: entry for entry in takewhile(lambda entry: entry.id != session_id, served)}.values()]

    def in_order(self, group_id: int, now: datetime, limit: int) -> list[SessionRequest]:
        """Return the entries of a group that are served next, at most `limit`, in order."""
        if group_id not in self._ordered:
            entries = (entry for entry in entries_of(self.requests.values()) if entry.group_id == group_id)
            self._ordered[group_id] = sorted(entries, key=self._queue_key)
        group = (entry for entry in self._ordered[group_id] if entry.id in self.requests)
        shares = self.fair_shares_of(group_id)
        return list(islice(group if shares is None else fair_sequence(group, shares, now), limit))

    def fair_shares_of(self, group_id: int) -> FairShares | None:
        """Return the use of a fair group; None for others, and for groups without hosts."""
        return self.cluster.fair_shares(group_id) if group_id in self._fair_groups else None

    def associations_in(self, group_id: int) -> set[Association]:
        """Return the users who wait in a group, for projects or without one."""
        return {association_of(entry) for entry in entries_of(self.requests.values()) if entry.group_id == group_id}

    def starts(self, now: datetime, look_ahead: int) -> dict[str, StartEstimate]:
        """Return the estimated starts of waiting requests, by session id, over at most `look_ahead` ends."""
        has_any = self.cluster.has_ends or any(outlook.coming for outlook in self.cluster.outlooks.values())
        return self.copy().forecast(now, look_ahead) if self.requests and has_any else {}

    def forecast(
        self, now: datetime, look_ahead: int, hypothetical: Iterable[SessionRequest] = ()
    ) -> dict[str, StartEstimate]:
        """As `starts`, also for hypothetical requests, which take nothing where they start; consumes the state."""
        queue = self._queue.copy(self.cluster)
        for number, request in enumerate(self._left):
            if _fair_key(request) in self._fair:  # it may have left the queue since, for a claim
                queue.add((1, number), request, is_new=False)
        for number, request in enumerate(hypothetical):
            queue.add((2, number), request, is_new=False, is_hypothetical=True)
        coming = {
            group_id: hosts
            for group_id, outlook in self.cluster.outlooks.items()
            if (hosts := [host for host in outlook.coming if host.at > now])
        }
        first = {group_id: self.in_order(group_id, now, MAX_ON_COMING) for group_id in coming}
        limits = self.cluster.limits.copy()
        starts = advance_through_ends(self.cluster, queue, now, look_ahead)
        for group_id, hosts in coming.items():
            starts |= starts_on(first[group_id], limits, hosts, starts)
        return starts

    def likely_starts(
        self, now: datetime, look_ahead: int, past: RunTimes, hypothetical: Iterable[SessionRequest] = ()
    ) -> dict[str, datetime]:
        """Return when the requests are likely to start: the forecast in which sessions run as long as predicted.

        Time limits are what is known where there is no past.
        """
        state = self.copy()
        state.cluster.predict_ends(partial(past.end_of, now=now))
        waits = [
            (self._queue_key(entry, position), past.bounded(entry))
            for request in self.requests.values()
            for position, entry in enumerate((request, *request.alternatives))
            if entry.group_id not in self._fair_groups
        ]
        state._queue = WaitQueue(state.cluster)
        for key, request in waits:
            state._queue.add(key, request, is_new=False)
        state._left = [past.bounded(request) for request in self._left]
        starts = state.forecast(now, look_ahead, map(past.bounded, hypothetical))
        return {session_id: start.at for session_id, start in starts.items()}

    @property
    def pairs(self) -> int:
        """Waiting times running sessions: bounds what a forecast takes, as each that waits may look at each end."""
        return len(self.requests) * self.cluster.running_count

    def _clear_head(self, group_id: int, session_id: str) -> None:
        """Drop what is reserved in a group for a session, if it is the head: others may have the host."""
        group = self.cluster.groups.get(group_id)
        if group is not None and group.head is not None and group.head.id == session_id:
            for host in group.reserved_hosts:
                self._queue.note_growth(group_id, host)
            group.clear_head()

    def _leave_fair(self, session_id: str) -> None:
        """Remove all entries in fair groups of a session that has started."""
        request = self.requests[session_id]
        for entry in (request, *request.alternatives):
            self._fair.pop(_fair_key(entry), None)

    def _queue_key(self, request: SessionRequest, position: int = 0) -> QueueKey:
        """Return the place of an entry; `position` is that among the entries of its session."""
        group_id, priority, queued_at = request.group_id, request.priority, request.queued_at
        bonus = self._bonus.get((group_id, priority))
        if bonus is None:
            bonus = self._bonus[group_id, priority] = bonus_of(priority, self._rules.get(group_id, DEFAULT))
        rank = self._ranks.get(request.id, 0)
        return 0, request.is_preemptible, queued_at - bonus, -priority, queued_at, rank, request.id, position


def _fair_key(entry: SessionRequest) -> FairKey:
    return entry.id, entry.group_id, entry.traits
