"""Replay of sessions with a virtual clock, under given hosts and rules. Pure.

It advances one cluster state through time by the steps of a pass (`placement.serve`); nothing is sampled or
approximated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from scheduler.core.capacity.fragmentation import Fragmentation, usual_shapes
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.placement import serve
from scheduler.core.types import SessionRequest, Snapshot, entries_of


class Job(NamedTuple):
    """A recorded session: its request, which joined at `request.queued_at`, and how long it ran."""

    request: SessionRequest
    runs_for: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Outcome of a replay. The rates are means over time, from the first arrival to the last."""

    starts: dict[str, datetime] = field(repr=False)  # by session id
    mean_wait: timedelta
    p95_wait: timedelta
    max_wait: timedelta
    never_started: int
    utilisation: float  # part of all GPU that was in use
    fragmentation: float  # part of the free GPU that the usual requests could not use
    fairness: float  # Jain's index over users of run / (wait + run): 1 if equal for all


def simulate(world: Snapshot, jobs: Iterable[Job]) -> SimulationResult:
    """Replay `jobs` on the hosts of `world`, under its rules and limits, beside the sessions that run there.

    A session ends when its job does, whatever its time limit; those that run in `world` end at their time limit. Where
    the rules name no mix of usual requests, that of all jobs is used, as a platform knows its history.
    """
    submitted = sorted(jobs, key=lambda job: job.request.queued_at)
    replay = _Replay(replace(world, queue=tuple(job.request for job in submitted)), submitted)
    for at, together in groupby((job.request for job in submitted), key=attrgetter("queued_at")):
        replay.advance(at, list(together))
    replay.advance(None, ())
    return replay.outcome()


class _Replay:
    """Virtual clock, cluster state and measurements of a replay."""

    def __init__(self, world: Snapshot, submitted: Sequence[Job]) -> None:
        self._cluster = ClusterState(world)
        self._rules = world.rules
        self._jobs = {job.request.id: job for job in submitted}
        self._waiting: list[SessionRequest] = []  # an entry for each group
        self._ends: list[tuple[datetime, int, str]] = []  # time, group id, session id
        self._starts: dict[str, datetime] = {}
        self._meter = _Meter(self._cluster)
        for group_id, group in self._cluster.groups.items():
            for at, session_id, _ in group.ends:
                heappush(self._ends, (at, group_id, session_id))

    def advance(self, until: datetime | None, submitted: Sequence[SessionRequest]) -> None:
        """Replay all ends up to `until` (None: to the last), with a pass each, then a pass with `submitted` queued."""
        while self._ends and (until is None or self._ends[0][0] <= until):
            at = self._ends[0][0]
            self._meter.pass_time(at, counts=until is not None)
            while self._ends and self._ends[0][0] == at:
                _, group_id, session_id = heappop(self._ends)
                self._meter.note(group_id, self._cluster.end(group_id, session_id, at).host_id)
            if at != until:
                self._serve(at)
        if until is not None:
            self._meter.pass_time(until, counts=True)
            self._waiting += entries_of(submitted)
            self._serve(until)

    def _serve(self, now: datetime) -> None:
        self._cluster.clear_reservations()
        placements, self._waiting = serve(self._cluster, self._waiting, self._rules, now)
        for placement in placements:
            group_id = self._cluster.group_of[placement.host_id]
            self._starts[placement.session_id] = now
            heappush(self._ends, (now + self._jobs[placement.session_id].runs_for, group_id, placement.session_id))
            self._meter.note(group_id, placement.host_id)

    def outcome(self) -> SimulationResult:
        """Return the result of the replay."""
        waits = sorted(at - self._jobs[name].request.queued_at for name, at in self._starts.items())
        return SimulationResult(
            starts=self._starts,
            mean_wait=sum(waits, timedelta()) / max(1, len(waits)),
            p95_wait=waits[(len(waits) * 95 - 1) // 100] if waits else timedelta(),
            max_wait=waits[-1] if waits else timedelta(),
            never_started=len(self._jobs) - len(waits),
            utilisation=self._meter.utilisation,
            fragmentation=self._meter.fragmentation,
            fairness=self._fairness(),
        )

    def _fairness(self) -> float:
        ran: dict[int, timedelta] = {}
        took: dict[int, timedelta] = {}
        for name, at in self._starts.items():
            job = self._jobs[name]
            owner = job.request.owner_id
            ran[owner] = ran.get(owner, timedelta()) + job.runs_for
            took[owner] = took.get(owner, timedelta()) + (at - job.request.queued_at) + job.runs_for
        return jain([ran[owner] / took[owner] for owner in ran if took[owner]])


def jain(amounts: Sequence[float]) -> float:
    """Return the fairness index of Jain, Chiu and Hawe (1984): 1 if all are equal, 1/n if one has everything."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 1.0


class _Meter:
    """Integrals over time of free GPU, and of the part of it that the usual requests cannot use."""

    def __init__(self, cluster: ClusterState) -> None:
        self._groups = cluster.groups
        self._measures = {
            key: Fragmentation(usual_shapes(group.mix()), group.gpu_capacity) for key, group in cluster.groups.items()
        }
        self._capacity = sum(
            len(host.gpus) * group.gpu_capacity for group in cluster.groups.values() for host in group.host_views
        )
        self._known: dict[int, tuple[int, float]] = {}  # by host id: free milli-fGPU, and the unusable part of it
        self._free, self._unusable = 0, 0.0
        self._now: datetime | None = None
        self._seconds = self._free_seconds = self._unusable_seconds = 0.0
        for key, group in cluster.groups.items():
            for host in group.host_views:
                self.note(key, host.id)

    def note(self, group_id: int, host_id: int) -> None:
        """Measure a host again after a change."""
        host = self._groups[group_id].host_capacities[host_id]
        free, unusable = self._known.get(host_id, (0, 0.0))
        measure = self._measures[group_id]
        unusable_now = measure.unusable(host.cpu, host.memory_bytes, host.device_free, host.traits)
        now = self._known[host_id] = host.total_free, unusable_now / measure.total_weight
        self._free += now[0] - free
        self._unusable += now[1] - unusable

    def pass_time(self, until: datetime, *, counts: bool) -> None:
        """Advance to `until`; `counts`: whether the time since counts in the means."""
        if self._now is not None and counts:
            seconds = (until - self._now).total_seconds()
            self._seconds += seconds
            self._free_seconds += seconds * self._free
            self._unusable_seconds += seconds * self._unusable
        self._now = until

    @property
    def utilisation(self) -> float:
        whole = self._seconds * self._capacity
        return 1 - self._free_seconds / whole if whole else 0.0

    @property
    def fragmentation(self) -> float:
        return self._unusable_seconds / self._free_seconds if self._free_seconds else 0.0
