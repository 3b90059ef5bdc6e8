"""Forecast of starts: what happens if sessions run to their time limits and no request joins. Pure.

It continues from the state that a pass has left: at each end of a session, in order of time, the waiting requests are
served by the rules of a pass. Requests reached this way have an estimate; those that depend on unbounded sessions have
none. Fair groups are served in the order of the pass, while later passes may order them otherwise.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.types import SessionRequest, Shape
from scheduler.core.waiting.explanation import eta_reason_text
from scheduler.core.waiting.wait_queue import WaitQueue

WORK_LIMIT: Final = 1_000_000  # steps of a forecast: a count, so that equal states have equal estimates


class StartEstimate(NamedTuple):
    """Latest start of a session, and a clause that says why not earlier."""

    at: datetime
    eta_reason: str


def forecast(
    cluster: ClusterState,
    left: Iterable[SessionRequest],
    now: datetime,
    look_ahead: int,
    hypothetical_ids: frozenset[str] = frozenset(),
) -> dict[str, StartEstimate]:
    """Return the estimated starts of `left`, in the order served, by session id; `cluster` is consumed.

    Covers `look_ahead` distinct moments of session ends. Requests in `hypothetical_ids` take nothing where they would
    start.
    """
    if not cluster.has_ends:
        return {}
    queue = WaitQueue(cluster)
    for position, request in enumerate(left):
        queue.add((position,), request, is_new=False, is_hypothetical=request.id in hypothetical_ids)
    return advance_through_ends(cluster, queue, now, look_ahead)


def advance_through_ends(
    cluster: ClusterState, queue: WaitQueue, now: datetime, look_ahead: int, work_limit: int = WORK_LIMIT
) -> dict[str, StartEstimate]:
    """Return the estimated starts of the queue, by session id; cluster and queue are consumed.

    Ends early once `work_limit` is reached: the starts found by then stand, later ones have no estimate.
    """
    future = _Future(cluster, queue, now)
    for _ in range(look_ahead):
        at = future.next_end()
        if at is None or future.work > work_limit:
            break
        future.advance(max(at, now))
    return future.starts


class _Future:
    """Cluster state and queue at a virtual time."""

    def __init__(self, cluster: ClusterState, queue: WaitQueue, now: datetime) -> None:
        self._now = now
        self._cluster = cluster
        self._queue = queue
        self._ended: dict[int, int] = {}  # by host id: sessions that run now and have ended by the virtual time
        self._free: dict[int, Shape] = {}  # by host id: what was free before the first of its sessions ended
        self._ends = 0  # of sessions by the virtual time
        self.starts: dict[str, StartEstimate] = {}
        for group in cluster.groups.values():
            group.forget_unknown_ends(now)
            group.ends_walked = 0

    @property
    def work(self) -> int:
        """Steps so far: ends, requests and classes that were looked at; at most some ten microseconds each."""
        walked = sum(group.ends_walked for group in self._cluster.groups.values())
        return self._ends + self._queue.evaluated + walked

    def next_end(self) -> datetime | None:
        """Return the next end of a session; None if there is none, or the queue is empty."""
        if self._queue.is_empty:
            return None
        return min((group.ends[0][0] for group in self._cluster.groups.values() if group.ends), default=None)

    def advance(self, at: datetime) -> None:
        """End all sessions whose bound is not after `at`, then serve the queue."""
        freed = []
        for group_id, group in self._cluster.groups.items():
            while group.ends and group.ends[0][0] <= at:
                _, session_id, running = group.ends[0]
                host = group.host_capacities[running.host_id]
                self._free.setdefault(host.host_id, Shape(host.cpu, host.memory_bytes, host.max_request_milli))
                session = self._cluster.end(group_id, session_id)
                freed.append(session)
                self._ends += 1
                if session.started_at <= self._now:
                    self._ended[session.host_id] = self._ended.get(session.host_id, 0) + 1
                self._queue.note_growth(group_id, host)
        self._queue.readmit(freed)
        for request, placements in self._queue.serve(at):
            ended = sum(self._ended.get(host_id, 0) for host_id in {each.host_id for each in placements})
            free = self._free.get(placements[0].host_id, request.shape)
            core_milli = self._cluster.groups[request.group_id].rules.core_milli
            reason = eta_reason_text(request, free, ended, request.id in self._queue.over_limit_ids, core_milli)
            self.starts[request.id] = StartEstimate(at, reason)
