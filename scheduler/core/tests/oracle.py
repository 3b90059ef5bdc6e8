"""The rules of docs/scheduling.md, written out by trying everything: for worlds of a few hosts and sessions.

An implementation of its own, to compare plans with: it shares the types of a snapshot with the product, and no code.
`oracle_hosts` has the hosts, `oracle_pass` whose turn it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import combinations
from typing import Final

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.oracle_hosts import Host, Policy, Split, split_with
from scheduler.core.types import (
    EPOCH,
    Rules,
    RunningSession,
    SessionRequest,
    Snapshot,
)

GRACE: Final = timedelta(minutes=2)  # after its latest end a session may end at any moment


@dataclass
class Reserved:
    """What is reserved for the first in line: a host from a moment on, or without one as a whole."""

    host: Host
    at: datetime | None
    then: Host | None  # the host as it is at that moment


@dataclass
class Group:
    """One resource group in a pass."""

    id: int
    rules: Rules
    hosts: list[Host]
    policy: Policy
    images: dict[int, frozenset[int]]
    running: dict[str, RunningSession] = field(default_factory=dict)
    endless: frozenset[str] = frozenset()  # ids of sessions that may stay for ever, whatever their end
    head: SessionRequest | None = None
    reserved: Reserved | None = None

    def host(self, host_id: int) -> Host:
        return next(host for host in self.hosts if host.view.id == host_id)

    def place(self, request: SessionRequest, now: datetime) -> RunningSession | None:
        """Start a request if that delays the first in line by nothing."""
        found = self._on_free_host(request) or self._on_reserved_host(request, now)
        if found is None:
            return None
        host, split = found
        shares = tuple((gpu.id, split[place]) for place, gpu in enumerate(host.view.gpus) if place in split)
        session = started(request, host.view.id, shares, now, self.end_of(request, now))
        host.add(session, -1)
        self.running[session.session_id] = session
        return session

    def end_of(self, request: SessionRequest, now: datetime) -> datetime | None:
        return None if request.duration is None else now + request.duration + self.rules.overhead

    def _on_free_host(self, request: SessionRequest) -> tuple[Host, Split] | None:
        shape = request.shape
        fitting = [host for host in self.hosts if host.fits(shape) and not self._is_reserved(host)]
        good = [host for host in fitting if host.view.id not in request.avoided_host_ids]
        if not fitting:
            return None
        host = min(good or fitting, key=lambda host: self.policy.rank(host, shape))
        host = self._equal(host, good, request)
        return host, split_with(host, shape, next(iter(self.policy.devices(host, shape)), None))

    def _is_reserved(self, host: Host) -> bool:
        return self.reserved is not None and self.reserved.host is host

    def _equal(self, host: Host, good: Sequence[Host], request: SessionRequest) -> Host:
        """Return which of the hosts with the same amounts has the closest devices, then the image."""
        having = self.images.get(request.image_id, frozenset())
        equal = [other for other in good if _amounts(other) == _amounts(host)]
        if not host.is_wired or request.fgpu_milli < 2 * host.capacity:
            if host.view.id in having:
                return host
            return min((other for other in equal if other.view.id in having), key=lambda it: it.name, default=host)
        whole = request.fgpu_milli // host.capacity

        def rank(other: Host) -> tuple[object, ...]:
            closest = max(other.close(places) for places in combinations(other.empty(), whole))
            return -closest, other.view.id not in having, other is not host, other.name

        return min((other for other in [host, *equal] if other.is_wired), key=rank)

    def _on_reserved_host(self, request: SessionRequest, now: datetime) -> tuple[Host, Split] | None:
        shape, reserved = request.shape, self.reserved
        if reserved is None or reserved.at is None or reserved.then is None or not reserved.host.fits(shape):
            return None
        devices: list[int | None] = [*self.policy.devices(reserved.host, shape)] or [None]
        end = self.end_of(request, now)
        if end is not None and end <= reserved.at:
            return reserved.host, split_with(reserved.host, shape, devices[0])
        assert self.head is not None
        for device in devices:
            split = split_with(reserved.host, shape, device)
            then = reserved.then.after(shape, split)
            if then.fits(self.head.shape):
                reserved.then = then
                return reserved.host, split
        return None

    def refuse(self, request: SessionRequest, now: datetime) -> None:
        """Reserve a host for the first request that does not fit, but that a host could hold: the first in line."""
        if self.head is not None or not any(self._could_hold(it, request, now) for it in self.hosts):
            return
        self.head = request
        ends = sorted(
            {max(it.ends_at, now) for it in self.running.values() if it.ends_at and not self.is_unknown(it, now)}
        )
        for moment in ends:
            later = [self.at(host, moment, now) for host in self.hosts]
            fitting = [place for place, host in enumerate(later) if host.fits(request.shape)]
            if fitting:
                first = min(fitting, key=lambda place: later[place].name)
                self.reserved = Reserved(self.hosts[first], moment, later[first])
                return
        self._reserve_whole(request, now)

    def is_unknown(self, session: RunningSession, now: datetime) -> bool:
        is_overdue = session.ends_at is not None and session.ends_at < now - GRACE
        return is_overdue or session.session_id in self.endless

    def at(self, host: Host, moment: datetime, now: datetime) -> Host:
        """Return a host as it is once all that end by a moment have ended."""
        later = host.copy()
        for one in self.running.values():
            ends = one.ends_at is not None and max(one.ends_at, now) <= moment and not self.is_unknown(one, now)
            if one.host_id == host.view.id and ends:
                later.add(one, 1)
        return later

    def _could_hold(self, host: Host, request: SessionRequest, now: datetime) -> bool:
        """Return whether a host could take the request, were all gone but those overdue."""
        then = Host(host.view, host.view.cpu, host.view.memory_bytes, [gpu.capacity_milli for gpu in host.view.gpus])
        for one in self.running.values():
            if one.host_id == host.view.id and self.is_unknown(one, now):
                then.add(one, -1)
        return then.fits(request.shape)

    def _reserve_whole(self, request: SessionRequest, now: datetime) -> None:
        since = request.queued_at + self.rules.reservation_delay
        able = [host for host in self.hosts if since <= now and self._could_hold(host, request, now)]
        if not able:
            return

        def rank(host: Host) -> tuple[object, ...]:
            starts = [one.started_at for one in self.running.values() if one.host_id == host.view.id]
            lacks = (
                max(0, request.fgpu_milli - host.largest()),
                max(0, request.shape.cpu - host.cpu),
                max(0, request.memory_bytes - host.memory),
            )
            return max([since, EPOCH, *starts]), lacks, host.name

        self.reserved = Reserved(min(able, key=rank), None, None)


def _amounts(host: Host) -> tuple[object, ...]:
    """Return all by which other sessions could tell hosts apart."""
    free = sorted(max(0, amount) for amount in host.free)
    return host.cpu, host.memory, free, host.view.divides or not free, host.view.traits


def started(
    request: SessionRequest, host_id: int, shares: tuple[tuple[int, int], ...], now: datetime, end: datetime | None
) -> RunningSession:
    """Return the running session of a request that starts now."""
    return RunningSession(
        session_id=request.id,
        owner_id=request.owner_id,
        host_id=host_id,
        cpu=request.cpu,
        memory_bytes=request.memory_bytes,
        shares=shares,
        started_at=now,
        ends_at=end,
        project_id=request.project_id,
        charge_percent=request.charge_percent,
        core_milli=request.core_milli,
    )


def is_within(limits: PolicyLimits, used: Amounts, request: SessionRequest) -> bool:
    """Return whether one more session is within limits."""
    sums = (
        (limits.cpu, used.cpu + request.cpu),
        (limits.memory, used.memory + request.memory_bytes),
        (limits.fgpu, used.fgpu + request.fgpu_milli),
        (limits.sessions, used.sessions + 1),
    )
    return all(limit is None or amount <= limit for limit, amount in sums)


@dataclass(frozen=True)
class Ended:
    """Sessions that end for a request on a host: how many, and how long they have run in all."""

    host_id: int
    count: int
    lost: timedelta


def preemption(group: Group, request: SessionRequest, now: datetime) -> Ended | None:
    """Return what is ended for a request: the fewest, then the youngest; nobody if it starts once others have ended."""
    ranked = []
    for place, host in enumerate(group.hosts):
        here = [it for it in group.running.values() if it.host_id == host.view.id]
        may_end = [it for it in here if it.is_preemptible]
        ending = [it for it in here if it.preempted_for and not it.is_preemptible]
        is_left = (
            group.reserved is None
            or group.reserved.host is not host
            or (group.head is not None and group.head.id == request.id)
        )
        if not is_left or not (may_end or ending):
            continue
        later = host.copy()
        for one in ending:
            later.add(one, 1)
        if later.fits(request.shape):
            return None
        for count in range(1, len(may_end) + 1):
            for victims in combinations(may_end, count):
                then = later.copy()
                for one in victims:
                    then.add(one, 1)
                if then.fits(request.shape):
                    lost = sum((now - it.started_at for it in victims), timedelta())
                    ranked.append((host.view.id in request.avoided_host_ids, count, lost, place))
    if not ranked:
        return None
    _, count, lost, place = min(ranked)
    return Ended(group.hosts[place].view.id, count, lost)


def groups_of(snapshot: Snapshot) -> dict[int, Group]:
    """Return the groups of a snapshot that have hosts."""
    groups = {}
    for group_id in sorted({host.group_id for host in snapshot.hosts}):
        views = sorted((it for it in snapshot.hosts if it.group_id == group_id), key=lambda it: (it.name, it.id))
        hosts = [Host(it, it.cpu_free, it.memory_free_bytes, [gpu.free_milli for gpu in it.gpus]) for it in views]
        rules = snapshot.rules.get(group_id, Rules())
        policy = Policy(rules.placement_policy, rules.mix, max(host.capacity for host in hosts))
        ids = {view.id for view in views}
        running = {it.session_id: it for it in snapshot.running if it.host_id in ids}
        groups[group_id] = Group(group_id, rules, hosts, policy, dict(snapshot.image_hosts), running)
    return groups


def entries(queue: Iterable[SessionRequest]) -> list[SessionRequest]:
    """Return each request and then its alternatives."""
    return [entry for request in queue for entry in (request, *request.alternatives)]
