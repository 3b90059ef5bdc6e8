"""Advice on sessions not yet submitted: when each would start, why then, and what would start sooner. Pure.

It uses the state and rules of a pass, so the answer is what the next pass does if nothing changes before it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from resources.amounts.units import FGPU_STEP, GIB, MIB
from scheduler.advice.preemption import starts_by_preemption, state_for_preemption
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import SessionRequest, Shape, Snapshot, entries_of
from scheduler.core.waiting.calibration import StartRange
from scheduler.core.waiting.explanation import Explainer
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.state.likely_starts import LikelyStarts
from sessions.lifecycle import START_CERTAINTY

LOOK_AHEAD: Final = 30  # distinct moments of session ends: bounds the cost of an answer while a slider moves
SMALLEST: Final = Shape(1, 64 * MIB, FGPU_STEP)  # of what is proposed instead

Starts = datetime | Literal["now"] | None  # None: cannot be estimated


class SessionAdvice(NamedTuple):
    """When one session starts, why not now, and why not before that."""

    starts: Starts
    reason: str = ""
    eta_reason: str = ""
    starts_from: datetime | None = None  # the likely start: between these, with this certainty
    starts_until: datetime | None = None
    certainty: float | None = None


class Alternative(NamedTuple):
    """A changed request, of which all sessions start sooner: its group and the amounts of each, or of each member.

    Those of a first member with amounts of its own stay as they are.
    """

    group_id: int
    cpu: int
    memory_bytes: int
    fgpu_milli: int
    starts: Starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The sessions in the order in which they start, and alternatives by which all start sooner, the closest first."""

    sessions: tuple[SessionAdvice, ...]
    alternatives: tuple[Alternative, ...] = ()

    @property
    def last(self) -> SessionAdvice:
        """The session that starts last: by then all have started."""
        return self.sessions[-1]


def advise(
    snapshot: Snapshot,
    requests: Sequence[SessionRequest],
    now: datetime,
    *,
    elsewhere: Iterable[SessionRequest] = (),
    look_ahead: int = LOOK_AHEAD,
) -> Advice:
    """Return what the next pass would do with `requests`, and otherwise the estimates of their starts.

    The requests are at least one, equal but for their ids. `elsewhere` is the first of them in each group that the
    user may use instead; `snapshot` holds their hosts, running and waiting sessions.
    """
    ranks = {queued.id: rank for rank, queued in enumerate((*snapshot.queue, *requests))}
    state = IncrementalState(snapshot, ranks)
    return advise_on(state, requests, now, elsewhere=elsewhere, look_ahead=look_ahead)


def advise_on(
    state: IncrementalState,
    requests: Sequence[SessionRequest],
    now: datetime,
    *,
    elsewhere: Iterable[SessionRequest] = (),
    least: Shape = SMALLEST,
    graces: Mapping[int, timedelta] = MappingProxyType({}),
    look_ahead: int = LOOK_AHEAD,
    likely: LikelyStarts | None = None,
) -> Advice:
    """As `advise`, on a state, which is consumed; nothing below the amounts of `least` is proposed.

    With `likely`, those that wait are told the range of their starts. `graces` are, by group id, for how long its
    preemptible sessions are warned; those of other groups do not end.
    """
    for request in requests:
        state.add(request)
    placed = {placement.session_id for placement in state.serve(now)}
    started = [request for request in requests if request.id in placed]
    waiting = [request for request in requests if request.id not in placed]
    if not waiting:
        return Advice(sessions=(SessionAdvice("now"),) * len(started))
    explainer = Explainer(state.cluster)
    reasons = [explainer.explain(request).detail for request in waiting]
    learned = state.likely_starts(now, look_ahead, likely.past) if likely is not None and likely.past else None
    future, preempting = state.copy(), state_for_preemption(state.cluster, requests[0], graces)
    trial = Trial(state.cluster, requests, now)
    trial.withdraw(started)
    others = [(other, trial.starts_as(other)) for other in elsewhere]
    later = [
        other._replace(id=f"{other.id} in {other.group_id}")
        for other, starts_now in others
        if not starts_now and len(requests) == 1  # several would stand in each other's way
    ]
    starts = future.forecast(now, look_ahead, later)
    if preempting is not None:
        starts |= starts_by_preemption(preempting, waiting, starts, now, graces[requests[0].group_id])
    own = [starts.get(request.id) for request in waiting]
    last = own[-1]
    advice = [_session_advice(start, reason) for start, reason in zip(own, reasons, strict=True)]
    if likely is not None:
        is_known = likely.past.is_known_beside(state.cluster.running_count)
        advice = [
            _with_range(
                each,
                start.at if learned is None and start is not None else (learned or {}).get(request.id),
                start,
                partial(likely.of_group(request.group_id).range_of, now, is_known=is_known),
            )
            for each, start, request in zip(advice, own, waiting, strict=True)
        ]
    sooner = [
        alternative_of(copy, starts[copy.id].at)
        for copy in later
        if copy.id in starts and (last is None or starts[copy.id].at < last.at)
    ]
    return Advice(
        sessions=(SessionAdvice("now"),) * len(started) + tuple(advice),
        alternatives=(
            *(alternative_of(smaller, "now") for smaller in trial.smaller_requests(least)),
            *(alternative_of(other, "now") for other, starts_now in others if starts_now),
            *sooner,
        ),
    )


def _session_advice(start: StartEstimate | None, reason: str) -> SessionAdvice:
    return SessionAdvice(start.at, reason, start.eta_reason) if start else SessionAdvice(None, reason)


def _with_range(
    advice: SessionAdvice,
    likely: datetime | None,
    start: StartEstimate | None,
    range_of: Callable[[datetime, datetime | None], StartRange | None],
) -> SessionAdvice:
    """Return advice with the range of a likely start, if there is one."""
    estimate = None if likely is None else range_of(likely, None if start is None else start.at)
    if estimate is None:
        return advice
    return advice._replace(
        starts_from=estimate.starts_from,
        starts_until=estimate.starts_until,
        certainty=START_CERTAINTY[0] / START_CERTAINTY[1],
    )


def alternative_of(request: SessionRequest, starts: Starts) -> Alternative:
    """Return the group and amounts of a changed request, with its start."""
    return Alternative(request.group_id, *request.each, starts)


class Trial:
    """Starts of changed requests on the state that a pass has left; each is undone, and leaves no trace."""

    def __init__(self, cluster: ClusterState, requests: Sequence[SessionRequest], now: datetime) -> None:
        """Take the requests as they are, which have been served."""
        self._cluster = cluster
        self._requests = requests
        self._ids = {request.id for request in requests}
        self._now = now

    def withdraw(self, started: Iterable[SessionRequest]) -> None:
        """End those of the requests that the pass has started, and drop the reservation of one that it has not."""
        for request in started:
            self._end(self._group_of(request), request)
        self._clear_reservations()

    def starts_as(self, request: SessionRequest) -> bool:
        """Return whether all requests would start now, changed to this one, last in the queue."""
        return self._all_start(request)

    def smaller_requests(self, least: Shape) -> Iterator[SessionRequest]:
        """Yield the largest requests, each with less of one resource, that all start now; call `withdraw` first.

        `least` is the smallest to try. A first member with amounts of its own keeps them: the others get less, but of
        a GPU that it has as much of as they.
        """
        asked, (cpu, memory_bytes, fgpu_milli) = self._requests[0], self._requests[0].each
        others = asked.members - (asked.main is not None)
        amounts = {
            "fgpu_milli": (fgpu_milli if asked.main is None or not asked.main[2] else 0, FGPU_STEP),
            "cpu": (cpu, 1),
            "memory_bytes": (memory_bytes, 256 * MIB if memory_bytes > GIB else 64 * MIB),
        }
        for name, (of_each, step) in amounts.items():
            first, last = -(-getattr(least, name) // step), (of_each - 1) // step
            sizes = [
                _with_amount(asked, name, getattr(asked, name) - (of_each - count * step) * others)
                for count in range(max(first, 1), last + 1)
            ]
            found = [largest for each in self._monotonic(sizes) if (largest := self._largest(each)) is not None]
            if found:
                yield max(found, key=attrgetter(name))

    def _largest(self, sizes: Sequence[SessionRequest]) -> SessionRequest | None:
        """Return the last of these that starts now, if all do up to some one; None if the first does not."""
        started = bisect_left(sizes, True, key=lambda size: not self._all_start(size))
        return sizes[started - 1] if started else None

    def _monotonic(self, sizes: Iterable[SessionRequest]) -> Iterable[Sequence[SessionRequest]]:
        """Divide sizes so that where one starts all smaller ones of its part do: whole GPUs fit where parts do not."""
        groups = [self._cluster.groups.get(entry.group_id) for entry in entries_of([self._requests[0]])]
        capacities = [group.gpu_capacity for group in groups if group is not None and not group.divides]
        parts: dict[tuple[bool, ...], list[SessionRequest]] = {}
        for size in sizes:
            key = tuple(not (capacity and size.fgpu_milli % capacity) for capacity in capacities)
            parts.setdefault(key, []).append(size)
        return parts.values()

    def _all_start(self, request: SessionRequest) -> bool:
        """Return whether a changed request would start now, as often as was asked for; leave the state as it is."""
        started = []
        for each in self._requests:
            entries = (entry._replace(id=each.id, member_ids=each.member_ids) for entry in entries_of([request]))
            entry = next((entry for entry in entries if self._starts(entry)), None)
            if entry is None:
                break
            started.append(entry)
        for entry in started:
            self._end(entry.group_id, entry)
        self._clear_reservations()
        return len(started) == len(self._requests)

    def _starts(self, entry: SessionRequest) -> bool:
        """Start a changed request in its group; return whether that was possible."""
        return not self._cluster.limits.are_exceeded_by(entry) and bool(self._cluster.place(entry, self._now))

    def _end(self, group_id: int, request: SessionRequest) -> None:
        """End one of the requests that has started, with all its members."""
        for session_id in request.member_ids or (request.id,):
            self._cluster.end(group_id, session_id)

    def _group_of(self, request: SessionRequest) -> int:
        """Return the group in which one of the requests has started."""
        groups = [each.group_id for each in entries_of([request]) if each.group_id in self._cluster.groups]
        return next(group_id for group_id in groups if request.id in self._cluster.groups[group_id].running)

    def _clear_reservations(self) -> None:
        """Drop what is reserved for the requests."""
        for group in self._cluster.groups.values():
            if group.head is not None and group.head.id in self._ids:
                group.clear_head()


def _with_amount(request: SessionRequest, name: str, amount: int) -> SessionRequest:
    changed: dict[str, Any] = {name: amount}
    alternatives = tuple(each._replace(**changed) for each in request.alternatives)
    return request._replace(**changed, alternatives=alternatives)
