"""Candidates: the running sessions that may end for others, and what was found of them on each host. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain
from typing import Final, NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import EPOCH, RunningSession, SessionRequest, Shape
from scheduler.core.victims import MICROSECOND, fewest_victims, without

MAX_FOUND: Final = 100_000  # victims, by host and shape, that are remembered
MAX_VICTIMS: Final = 1 << 20  # of a request: beyond any


class Bound(NamedTuple):
    """What it costs at least to end sessions on a host for a request: the least is the best."""

    is_needed: bool  # False: perhaps it starts without
    is_avoided: bool
    sessions: int
    lost: timedelta  # sum of the times for which they have run


class _Sums(NamedTuple):
    """What the sessions on a host give: by n, the most that n give together, and how young the n youngest are."""

    cpu: Sequence[int]
    fgpu_milli: Sequence[int]
    begun: Sequence[int]  # microseconds since EPOCH
    ending_cpu: int
    ending_milli: int


class _Found(NamedTuple):
    """The fewest victims on a host for a shape, while the host and its sessions are in a state."""

    state: tuple[object, ...]
    at_most: int  # looked for
    # With all that end with them; none are needed: empty; it takes more than `at_most`: None.
    victims: Sequence[RunningSession] | None


class Candidates:
    """Sessions of a cluster that may end for others, and those that will, by host id.

    What was found for a shape on a host is known until the host or these sessions change.
    """

    def __init__(self, running: Iterable[RunningSession]) -> None:
        """Take the running sessions of which these are."""
        self.may_end: dict[int, list[RunningSession]] = {}  # the youngest first
        self.ending: dict[int, list[RunningSession]] = {}
        self._clusters: dict[str, dict[str, RunningSession]] = {}  # by id, members that may end, which do together
        self._changes: Counter[int] = Counter()  # by host id
        self._sums: dict[int, _Sums] = {}  # by host id
        self._found: dict[tuple[int, Shape], _Found] = {}
        for session in running:
            self._add(session)
        for sessions in self.may_end.values():
            sessions.sort(key=_youth, reverse=True)

    def add(self, session: RunningSession) -> None:
        """Add a running session if it may end for others, or will."""
        self._add(session)
        if session.is_preemptible:
            self.may_end[session.host_id].sort(key=_youth, reverse=True)
        self._note_change(session)

    def _add(self, session: RunningSession) -> None:
        if session.is_preemptible:
            self.may_end.setdefault(session.host_id, []).append(session)
            if session.cluster_id:
                self._clusters.setdefault(session.cluster_id, {})[session.session_id] = session
        elif session.preempted_for:
            self.ending.setdefault(session.host_id, []).append(session)

    def remove(self, session: RunningSession) -> None:
        """Remove a session that has ended or changed."""
        for sessions in (self.may_end, self.ending):
            if session.host_id in sessions:
                left = [one for one in sessions[session.host_id] if one.session_id != session.session_id]
                sessions[session.host_id] = left
                if not left:
                    del sessions[session.host_id]
        self._note_change(session)
        if session.cluster_id in self._clusters:
            self._clusters[session.cluster_id].pop(session.session_id, None)
            if not self._clusters[session.cluster_id]:
                del self._clusters[session.cluster_id]

    def sessions(self) -> Iterator[RunningSession]:
        """Yield all of them."""
        for sessions in chain(self.may_end.values(), self.ending.values()):
            yield from sessions

    def has_any(self, host: HostCapacity) -> bool:
        """Return whether any of them is on a host."""
        return host.host_id in self.may_end or host.host_id in self.ending

    def bound(self, host: HostCapacity, request: SessionRequest, now: datetime) -> Bound:
        """Return a bound of what it costs to make room for a request on a host, found without a search."""
        sums = self._sums.get(host.host_id) or self._sum(host.host_id)
        cpu = request.shape.cpu - host.cpu - sums.ending_cpu
        fgpu_milli = request.fgpu_milli - host.total_free - sums.ending_milli
        count = max(bisect_left(sums.cpu, cpu), bisect_left(sums.fgpu_milli, fgpu_milli))
        youngest = min(count, len(sums.begun) - 1)
        lost = youngest * (now - EPOCH) - timedelta(microseconds=sums.begun[youngest])
        return Bound(count > 0, host.host_id in request.avoided_host_ids, count, lost)

    def settled(self, host: HostCapacity) -> HostCapacity:
        """Return a host as it is once the sessions that end for others have ended."""
        return without(host, self.ending.get(host.host_id, ()))

    def victims_on(self, host: HostCapacity, shape: Shape, at_most: int) -> Sequence[RunningSession] | None:
        """Return the fewest sessions that have to end on a host for a shape; None if these are more than `at_most`."""
        state = (self._changes[host.host_id], host.cpu, host.memory_bytes, host.device_free[:], host.device_owed[:])
        found = self._found.get((host.host_id, shape))
        if found is None or found.state != state or (found.victims is None and found.at_most < at_most):
            later = self.settled(host)
            sessions = self.may_end.get(host.host_id, ())
            victims = () if later.fits(shape) else fewest_victims(later, sessions, shape, at_most, self._clusters)
            if len(self._found) >= MAX_FOUND:
                self._found.clear()
            found = self._found[host.host_id, shape] = _Found(state, at_most, victims)
        return found.victims if found.victims is None or len(found.victims) <= at_most else None

    def _sum(self, host_id: int) -> _Sums:
        """Return what the sessions on a host give."""
        shapes = [one.shape for one in self.may_end.get(host_id, ())]
        ending = [one.shape for one in self.ending.get(host_id, ())]
        begun = [(one.started_at - EPOCH) // MICROSECOND for one in self.may_end.get(host_id, ())]
        found = self._sums[host_id] = _Sums(
            [0, *accumulate(sorted((shape.cpu for shape in shapes), reverse=True))],
            [0, *accumulate(sorted((shape.fgpu_milli for shape in shapes), reverse=True))],
            [0, *accumulate(begun)],
            sum(shape.cpu for shape in ending),
            sum(shape.fgpu_milli for shape in ending),
        )
        return found

    def _note_change(self, session: RunningSession) -> None:
        """Note a change of a host, and of those on which members end with this one."""
        self._sums.pop(session.host_id, None)
        together = self._clusters.get(session.cluster_id, {})
        self._changes.update({session.host_id, *(member.host_id for member in together.values())})


def _youth(session: RunningSession) -> tuple[datetime, str]:
    return session.started_at, session.session_id
