"""When those who wait will start, if everyone who runs keeps their bound and nobody else comes. Pure.

It goes on from where a pass has left its board: at every end of a session, in order of time, it gives the room to those
who wait, by the rules of a pass. Whoever is reached has an estimate; whoever depends on sessions without a bound has
none. The order is the one in which the pass has served: under dominant-resource fairness later passes may serve
otherwise.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from scheduler.core.cluster_state import ClusterState
from scheduler.core.explanation import eta_reason_text
from scheduler.core.types import SessionRequest
from scheduler.core.wait_queue import WaitQueue


class StartEstimate(NamedTuple):
    """When a session starts at the latest, and why not before, in words."""

    at: datetime
    eta_reason: str


def forecast(
    cluster: ClusterState,
    left: Iterable[SessionRequest],
    now: datetime,
    look_ahead: int,
    hypothetical: frozenset[str] = frozenset(),
) -> dict[str, StartEstimate]:
    """Return the starts of those in `left`, in the order served, by session id; `board` is played on and spent.

    Looks ahead at `look_ahead` moments at which sessions end. The `ghosts` in `left` are only asked about: where they
    would start they take nothing.
    """
    if not cluster.has_ends:
        return {}
    queue = WaitQueue(cluster)
    for place, request in enumerate(left):
        queue.add((place,), request, is_new=False, is_hypothetical=request.id in hypothetical)
    return play(cluster, queue, now, look_ahead)


def play(cluster: ClusterState, queue: WaitQueue, now: datetime, look_ahead: int) -> dict[str, StartEstimate]:
    """Return the starts of those in the line, by session id; both are played on and spent."""
    future = _Future(cluster, queue, now)
    for _ in range(look_ahead):
        at = future.next_end()
        if at is None:
            break
        future.advance(max(at, now))
    return future.starts


class _Future:
    """The board and the line as time goes on."""

    def __init__(self, cluster: ClusterState, queue: WaitQueue, now: datetime) -> None:
        self._now = now
        self._cluster = cluster
        self._queue = queue
        self._ended: dict[int, int] = {}  # how many of those that run now have ended, by host id
        self.starts: dict[str, StartEstimate] = {}

    def next_end(self) -> datetime | None:
        """Return when the next session ends; None if none does, or nobody waits any more."""
        if self._queue.is_empty:
            return None
        return min((group.ends[0][0] for group in self._cluster.groups.values() if group.ends), default=None)

    def advance(self, at: datetime) -> None:
        """Let every session end whose bound is not after `at`, then serve those who wait."""
        freed = []
        for group_id, group in self._cluster.groups.items():
            while group.ends and group.ends[0][0] <= at:
                running = self._cluster.end(group_id, group.ends[0][1])
                freed.append(running)
                if running.started_at <= self._now:
                    self._ended[running.host_id] = self._ended.get(running.host_id, 0) + 1
                self._queue.note_growth(group_id, group.host_capacities[running.host_id])
        self._queue.readmit(freed)
        for request, placement in self._queue.serve(at):
            eta_reason = eta_reason_text(
                request, self._ended.get(placement.host_id, 0), request.id in self._queue.over_limit_ids
            )
            self.starts[request.id] = StartEstimate(at, eta_reason)
