"""The rules of docs/scheduling.md, written out by trying everything: for worlds of a few hosts and sessions.

An implementation of its own, to compare plans with: it shares the types of a snapshot with the product, and no code.
`oracle_hosts` has the hosts, `oracle_pass` whose turn it is.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, combinations
from typing import Final

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.oracle_hosts import Host, Policy, Split, split_with
from scheduler.core.types import (
    EPOCH,
    Rules,
    RunningSession,
    SessionRequest,
    Shape,
    Snapshot,
)

GRACE: Final = timedelta(minutes=2)  # after its latest end a session may end at any moment


@dataclass
class Reserved:
    """What is reserved for the first in line: hosts from a moment on, or without one as a whole."""

    at: datetime | None
    parts: list["Part"]


@dataclass
class Part:
    """One of the hosts, what goes there, and the host as it is at that moment."""

    host: Host
    shape: Shape
    then: Host | None


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

    def place(self, request: SessionRequest, now: datetime) -> list[RunningSession] | None:
        """Start a request if that delays the first in line by nothing; return a session for each member."""
        spans = request.shape.spans_hosts
        found = self._on_several(request) if spans else self._on_free_host(request)
        if not found and not (spans and (request.mode == "spread" or request.pins)):
            found = self._on_reserved_host(request, now)
        sessions: list[RunningSession] = []
        for host, count, split in found:
            shares = tuple((gpu.id, split[place]) for place, gpu in enumerate(host.view.gpus) if place in split)
            names: Sequence[str] = (request.member_ids or (request.id,))[len(sessions) :][:count]
            if request.pins:
                pinned = zip(request.member_ids, request.pins, strict=True)
                names = [name for name, pin in pinned if pin == host.view.id]
            sessions += started(request, names, host.view.id, shares, now, self.end_of(request, now))
        for session in sessions:
            self.host(session.host_id).add(session, -1)
            self.running[session.session_id] = session
        return sessions or None

    def _on_several(self, request: SessionRequest) -> list[tuple[Host, int, Split]]:
        free = [host for host in self.hosts if not self._is_reserved(host)]
        good = [host for host in free if host.view.id not in request.avoided_host_ids]
        chosen = member_hosts(request.shape, good) or member_hosts(request.shape, free)
        parts = [request.shape.of_members(count, with_main=not at) for at, (_, count) in enumerate(chosen)]
        return [(host, count, self.policy.split(host, part)) for (host, count), part in zip(chosen, parts, strict=True)]

    def end_of(self, request: SessionRequest, now: datetime) -> datetime | None:
        return None if request.duration is None else now + request.duration + self.rules.overhead

    def _on_free_host(self, request: SessionRequest) -> list[tuple[Host, int, Split]]:
        shape = request.shape
        fitting = [host for host in self.hosts if host.fits(shape) and not self._is_reserved(host)]
        good = [host for host in fitting if host.view.id not in request.avoided_host_ids]
        if not fitting:
            return []
        host = min(good or fitting, key=lambda host: self.policy.rank(host, shape))
        host = self._equal(host, good, request)
        return [(host, request.members, self.policy.split(host, shape))]

    def _is_reserved(self, host: Host) -> bool:
        return self.reserved is not None and any(part.host is host for part in self.reserved.parts)

    def _equal(self, host: Host, good: Sequence[Host], request: SessionRequest) -> Host:
        """Return which of the hosts with the same amounts has the closest devices, then the image."""
        having = self.images.get(request.image_id, frozenset())
        equal = [other for other in good if _amounts(other) == _amounts(host)]
        has_parts = request.members > 1 and request.shape.member_milli < host.capacity
        if not host.is_wired or has_parts or request.fgpu_milli < 2 * host.capacity:
            if host.view.id in having:
                return host
            return min((other for other in equal if other.view.id in having), key=lambda it: it.name, default=host)
        whole = request.fgpu_milli // host.capacity

        def rank(other: Host) -> tuple[object, ...]:
            closest = max(other.close(places) for places in combinations(other.empty(), whole))
            return -closest, other.view.id not in having, other is not host, other.name

        return min((other for other in [host, *equal] if other.is_wired), key=rank)

    def _on_reserved_host(self, request: SessionRequest, now: datetime) -> list[tuple[Host, int, Split]]:
        reserved, end = self.reserved, self.end_of(request, now)
        if reserved is None or reserved.at is None:
            return []
        shape = request.shape.of_members(request.members, with_main=True)
        for part in reserved.parts:
            if not part.host.fits(shape) or part.then is None:
                continue
            if end is not None and end <= reserved.at:
                return [(part.host, request.members, self.policy.split(part.host, shape))]
            devices = self.policy.devices(part.host, shape)
            splits = [split_with(part.host, shape, device) for device in devices]
            for split in splits or [self.policy.split(part.host, shape)]:
                then = part.then.after(shape, split)
                if then.fits(part.shape):
                    part.then = then
                    return [(part.host, request.members, split)]
        return []

    def refuse(self, request: SessionRequest, now: datetime) -> None:
        """Reserve hosts for the first request that does not fit, but that they could hold: the first in line.

        Another entry of the first in line, on GPUs of another size, takes its place if it is promised an earlier start.
        """
        if self.head is not None and self.head.id == request.id and self.head is not request:
            known = self.head, self.reserved
            self.head = self.reserved = None
            self.refuse(request, now)
            ats = [it.at for it in (known[1], self.reserved) if it is not None and it.at is not None]
            is_sooner = self.reserved is not None and self.reserved.at is not None and self.reserved.at == min(ats)
            if not is_sooner or ats.count(min(ats)) > 1:
                self.head, self.reserved = known
            return
        shape = request.shape
        empty = [self._emptied(host, now) for host in self.hosts]
        is_able = member_hosts(shape, empty) if shape.spans_hosts else any(host.fits(shape) for host in empty)
        if self.head is not None or not is_able:
            return
        self.head = request
        ends = sorted(
            {max(it.ends_at, now) for it in self.running.values() if it.ends_at and not self.is_unknown(it, now)}
        )
        for moment in ends:
            later = {host.view.id: self.at(host, moment, now) for host in self.hosts}
            if shape.spans_hosts:
                chosen = member_hosts(shape, list(later.values()))
            else:
                fitting = [host for host in later.values() if host.fits(shape)]
                chosen = [(min(fitting, key=lambda host: host.name), shape.members)] if fitting else []
            if chosen:
                parts = [
                    Part(self.host(it.view.id), shape.of_members(count, with_main=not at), it)
                    for at, (it, count) in enumerate(chosen)
                ]
                self.reserved = Reserved(moment, parts)
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

    def _emptied(self, host: Host, now: datetime) -> Host:
        """Return a host as it is once all but those overdue have gone."""
        then = Host(host.view, host.view.cpu, host.view.memory_bytes, [gpu.capacity_milli for gpu in host.view.gpus])
        for one in self.running.values():
            if one.host_id == host.view.id and self.is_unknown(one, now):
                then.add(one, -1)
        return then

    def _reserve_whole(self, request: SessionRequest, now: datetime) -> None:
        since = request.queued_at + self.rules.reservation_delay
        one = request.shape.of_members(1) if request.shape.spans_hosts else request.shape
        kinds = [one]
        if request.main and request.shape.spans_hosts:
            kinds.append(request.shape.of_members(1, with_main=True))
        able = [
            host for host in self.hosts if since <= now and any(self._emptied(host, now).fits(kind) for kind in kinds)
        ]
        if request.pins:
            able = [host for host in able if host.view.id in request.pins]

        def rank(host: Host) -> tuple[object, ...]:
            starts = [it.started_at for it in self.running.values() if it.host_id == host.view.id]
            lacks = (
                max(0, one.fgpu_milli - host.largest()),
                max(0, one.cpu - host.cpu),
                max(0, one.memory_bytes - host.memory),
            )
            return max([since, EPOCH, *starts]), lacks, host.name

        able.sort(key=rank)
        chosen = able[:1]
        if request.shape.spans_hosts and request.main:
            chosen = []
            for count in range(1, len(able) + 1):
                some = [host for host in self.hosts if any(host is each for each in able[:count])]
                if taken := fewest_with_main(request.shape, [self._emptied(host, now) for host in some]):
                    chosen = [self.host(host.view.id) for host, _ in taken]
                    break
        elif request.shape.spans_hosts:
            wholes: list[list[Host]] = []
            for count in range(1, len(able) + 1):  # the first of the order that are enough, of one GPU model
                models = {model_of(host) if one.fgpu_milli else "" for host in able[:count]}
                for model in sorted(models):
                    some = [host for host in able[:count] if not one.fgpu_milli or model_of(host) == model]
                    if member_hosts(request.shape, [self._emptied(host, now) for host in some]):
                        wholes.append(some)
                if wholes:
                    break
            chosen = wholes[0] if wholes else []
        if chosen:
            self.reserved = Reserved(None, [Part(host, one, None) for host in chosen])


def model_of(host: Host) -> str:
    return next((trait for trait in sorted(host.view.traits) if trait.startswith("gpu_model:")), "")


def member_hosts(shape: Shape, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """Return the hosts that take the members of a cluster, each with how many; [] if not all find room.

    On as few as possible; of all sets of so few, on those with the longest path in common, with least room there.
    """
    if shape.main:
        return hosts_with_main(shape, hosts)
    best = _fewest_hosts(shape, hosts)
    counts = {host.view.id: _member_count(host, shape) for host in hosts}
    sets = [
        each
        for each in combinations([host for host in hosts if counts[host.view.id]], len(best))
        if (shape.mode == "spread" or sum(counts[host.view.id] for host in each) >= shape.members)
        and (not shape.fgpu_milli or len({model_of(host) for host in each}) == 1)
    ]
    paths = [[host.view.topology for host in each] for each in sets]
    length = max(
        (n for n in range(4) for each in paths if len({it[:n] for it in each}) == 1 and min(map(len, each)) >= n),
        default=0,
    )
    if len(best) < 2 or not length:
        return best
    found = []
    for path in sorted({host.view.topology[:length] for host in hosts if len(host.view.topology) >= length}):
        below = [host for host in hosts if host.view.topology[:length] == path]
        for model in sorted({model_of(host) if shape.fgpu_milli else "" for host in below}):
            able = [host for host in below if not shape.fgpu_milli or model_of(host) == model]
            chosen = _fewest_hosts(shape, able)
            if len(chosen) == len(best):
                found.append((sum(counts[host.view.id] for host in able), path, model, chosen))
    return min(found, key=lambda it: it[:3])[-1]


def _member_count(host: Host, shape: Shape) -> int:
    most = shape.pins.count(host.view.id) if shape.pins else 39
    return max(count for count in range(most + 1) if not count or host.fits(shape.of_members(count)))


def _fewest_hosts(shape: Shape, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """Return as few of the hosts as do: first those that take most, at last the one that takes just enough."""
    found: list[list[tuple[Host, int]]] = []
    for model in sorted({model_of(host) if shape.fgpu_milli else "" for host in hosts}):
        counts = [
            (_member_count(host, shape), place)
            for place, host in enumerate(hosts)
            if not shape.fgpu_milli or model_of(host) == model
        ]
        room = sorted(one for one in counts if one[0])
        if shape.mode == "spread":
            chosen = [(hosts[place], 1) for _, place in room[: shape.members]] if len(room) >= shape.members else []
        else:
            chosen = []
            left = shape.members
            while left and room:
                one = min((one for one in room if one[0] >= left), default=max(room))
                room.remove(one)
                chosen.append((hosts[one[1]], min(left, one[0])))
                left -= min(left, one[0])
            chosen = [] if left else chosen
            sizes = [count for count, _ in counts]
            fewest = [n for n in range(1, len(sizes) + 1) if sum(sorted(sizes)[-n:]) >= shape.members]
            assert len(chosen) == min(fewest, default=0)
        if chosen:
            found.append(chosen)
    return min(found, key=len, default=[])


def hosts_with_main(shape: Shape, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """As `member_hosts`, where the first member has amounts of its own: it goes to the first of the hosts."""
    best = fewest_with_main(shape, hosts)
    has_gpus = shape.of_members(1).fgpu_milli > 0
    for length in (3, 2, 1) if len(best) > 1 else ():
        found = []
        for path in sorted({host.view.topology[:length] for host in hosts if len(host.view.topology) >= length}):
            below = [host for host in hosts if host.view.topology[:length] == path]
            for model in sorted({model_of(host) if has_gpus else "" for host in below}):
                chosen = fewest_with_main(shape, below, model)
                if len(chosen) == len(best):
                    of_model = [host for host in below if not has_gpus or model_of(host) == model]
                    found.append((sum(_member_count(host, shape) for host in of_model), path, model, chosen))
        if found:
            return min(found, key=lambda it: it[:3])[-1]
    return best


def fewest_with_main(shape: Shape, hosts: Sequence[Host], only: str | None = None) -> list[tuple[Host, int]]:
    """Return as few of the hosts as do, the others on those of one GPU model, or of the one given.

    Each host is tried for the first member: among those with which the fewest are enough, the one that takes the
    fewest others beside it, then without it, then the first.
    """
    assert shape.main
    one, others = shape.of_members(1), shape.members - 1
    found: list[tuple[object, list[tuple[Host, int]]]] = []
    for place, host in enumerate(hosts):
        if not host.fits(shape.of_members(1, with_main=True)):
            continue
        if shape.pins and shape.pins[0] != host.view.id:
            continue
        most = shape.pins.count(host.view.id) if shape.pins else 40
        beside = max(count for count in range(most) if host.fits(shape.of_members(1 + count, with_main=True)))
        alone, its_model = _member_count(host, shape), model_of(host) if one.fgpu_milli else ""
        for model in sorted({model_of(each) if one.fgpu_milli else "" for each in hosts}) if only is None else [only]:
            if shape.main[2] and its_model != model:
                continue
            rest = [it for it in hosts if it is not host and (not one.fgpu_milli or model_of(it) == model)]
            here = 0 if shape.mode == "spread" or its_model != model else min(beside, others)
            left = shape.of_members(others - here)._replace(mode=shape.mode, pins=shape.pins)
            more = _fewest_hosts(left, rest) if others > here else []
            if more or here == others:
                found.append(((1 + len(more), model, beside, alone, its_model, place), [(host, 1 + here), *more]))
    return min(found, key=lambda each: each[0], default=(None, []))[1]  # type: ignore[arg-type, return-value]


def _amounts(host: Host) -> tuple[object, ...]:
    """Return all by which other sessions could tell hosts apart."""
    free = sorted(max(0, amount) for amount in host.free)
    return host.cpu, host.memory, free, host.view.divides or not free, host.view.traits


def started(
    request: SessionRequest,
    names: Sequence[str],
    host_id: int,
    shares: tuple[tuple[int, int], ...],
    now: datetime,
    end: datetime | None,
) -> list[RunningSession]:
    """Return the running sessions of members that start now on a host, each with its part of the shares."""
    units = [gpu_id for gpu_id, milli in shares for _ in range(milli // 50)]  # all amounts are multiples of 50
    amounts = [request.amounts_of(name) for name in names]
    ends = list(accumulate(milli // 50 for *_, milli in amounts))
    return [
        RunningSession(
            session_id=name,
            owner_id=request.owner_id,
            host_id=host_id,
            cpu=amounts[at][0],
            memory_bytes=amounts[at][1],
            shares=tuple(
                sorted(
                    (gpu_id, 50 * n) for gpu_id, n in Counter(units[ends[at] - amounts[at][2] // 50 : ends[at]]).items()
                )
            )
            if request.members > 1
            else shares,
            started_at=now,
            ends_at=end,
            project_id=request.project_id,
            charge_percent=request.charge_percent,
            core_milli=request.core_milli,
        )
        for at, name in enumerate(names)
    ]


def is_within(limits: PolicyLimits, used: Amounts, request: SessionRequest) -> bool:
    """Return whether one more session is within limits."""
    sums = (
        (limits.cpu, used.cpu + request.cpu),
        (limits.memory, used.memory + request.memory_bytes),
        (limits.fgpu, used.fgpu + request.fgpu_milli),
        (limits.sessions, used.sessions + request.members),
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
    for place, host in enumerate(group.hosts if not request.shape.spans_hosts else ()):
        here = [it for it in group.running.values() if it.host_id == host.view.id]
        may_end = [it for it in here if it.is_preemptible]
        ending = [it for it in here if it.preempted_for and not it.is_preemptible]
        is_reserved = group.reserved is not None and any(part.host is host for part in group.reserved.parts)
        is_left = not is_reserved or (group.head is not None and group.head.id == request.id)
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
        policy = Policy(rules.placement_policy, rules.mix, max(host.capacity for host in hosts), views)
        ids = {view.id for view in views}
        running = {it.session_id: it for it in snapshot.running if it.host_id in ids}
        groups[group_id] = Group(group_id, rules, hosts, policy, dict(snapshot.image_hosts), running)
    return groups


def entries(queue: Iterable[SessionRequest]) -> list[SessionRequest]:
    """Return each request and then its alternatives."""
    return [entry for request in queue for entry in (request, *request.alternatives)]
