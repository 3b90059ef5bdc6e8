"""A pass by the rules of docs/scheduling.md, over the groups of `oracle`: whose turn it is, who starts, and why not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import exp, floor, fsum, log

from accounts.limits import Amounts
from scheduler.core.tests.oracle import Group, entries, groups_of, is_within, member_hosts
from scheduler.core.types import (
    LimitHolder,
    QueueOrder,
    Rules,
    RunningSession,
    SessionRequest,
    Snapshot,
)
from sessions.lifecycle import Reason

Holder = tuple[int, int]  # project and user; 0 for none, and for all


class Pass:
    """State of a pass over a snapshot, at a time."""

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self.snapshot, self.now = snapshot, now
        self.groups = groups_of(snapshot)
        self.users = dict(snapshot.owners)
        self.projects = dict(snapshot.projects)

    def serve(self, queue: Iterable[SessionRequest]) -> tuple[list[RunningSession], list[SessionRequest]]:
        """Serve the entries of a queue in order; return who starts, and the entries that are left."""
        started: list[RunningSession] = []
        left: list[SessionRequest] = []
        for request in self.in_order(entries(queue)):
            if request.id in {session.session_id for session in started}:
                continue
            sessions = self.start(request)
            if sessions is not None:
                started += sessions
            else:
                left.append(request)
        names = {session.session_id for session in started}
        places = [(it.id, it.group_id) for it in self.without_predictions(entries(queue))]
        left.sort(key=lambda it: places.index((it.id, it.group_id)) if self.is_fifo(it) else len(places))
        return started, [request for request in left if request.id not in names]

    def start(self, request: SessionRequest) -> list[RunningSession] | None:
        """Start a request if it can; else it may become the first in line."""
        group = self.groups.get(request.group_id)
        if self.limit_reached(request) is not None or group is None:
            return None
        sessions = group.place(request, self.now)
        if sessions is None:
            group.refuse(request, self.now)
        elif group.head is not None and group.head.id == request.id:
            group.head = group.reserved = None
        for session in sessions or ():
            self.count(session, 1)
        return sessions

    def end(self, group: Group, session: RunningSession) -> None:
        """Let a session end."""
        del group.running[session.session_id]
        group.host(session.host_id).add(session, 1)
        self.count(session, -1)

    def count(self, session: RunningSession, sign: int) -> None:
        """Count a session in the limits of its user and project."""
        milli = sum(share for _, share in session.shares)
        more = Amounts(cpu=sign * session.cpu, memory=sign * session.memory_bytes, fgpu=sign * milli, sessions=sign)
        for holders, holder_id in ((self.users, session.owner_id), (self.projects, session.project_id)):
            if holder_id is not None and holder_id in holders:
                holder = holders[holder_id]
                holders[holder_id] = LimitHolder(limits=holder.limits, used=holder.used + more)

    def limit_reached(self, request: SessionRequest) -> Reason | None:
        """Return which limit forbids a request."""
        for reason, holders, holder_id in (
            (Reason.USER_LIMIT, self.users, request.owner_id),
            (Reason.PROJECT_LIMIT, self.projects, request.project_id),
        ):
            holder = None if holder_id is None else holders.get(holder_id)
            if holder is not None and not is_within(holder.limits, holder.used, request):
                return reason
        return None

    def reason(self, request: SessionRequest) -> Reason:
        """Return why a request waits, by the state as it is: of the first of its entries that lack only capacity."""
        reasons = [self.reason_of(it) for it in entries([request]) if it.group_id == request.group_id]
        far = (Reason.USER_LIMIT, Reason.PROJECT_LIMIT, Reason.NO_SUITABLE_HOST, Reason.NO_STORAGE)
        return next((it for it in reasons if it not in far), reasons[0])

    def reason_of(self, request: SessionRequest) -> Reason:
        limit, group = self.limit_reached(request), self.groups.get(request.group_id)
        if limit is not None:
            return limit
        if group is None:
            return Reason.NO_HOST
        shape, parts = request.shape, group.reserved.parts if group.reserved is not None else ()
        if parts and (
            member_hosts(shape, group.hosts) if shape.spans_hosts else any(p.host.fits(shape) for p in parts)
        ):
            return Reason.RESERVED
        missing = [
            trait for trait in request.traits if not any(trait in host.view.traits for host in group.hosts)
        ] or request.traits
        if not any(set(request.traits) <= host.view.traits for host in group.hosts):
            is_storage = all(trait.startswith("storage:") for trait in missing)
            return Reason.NO_STORAGE if is_storage else Reason.NO_SUITABLE_HOST
        return Reason.NO_CAPACITY

    def rules_of(self, group_id: int) -> Rules:
        return self.snapshot.rules.get(group_id, Rules())

    def in_order(self, queue: Iterable[SessionRequest]) -> Iterator[SessionRequest]:
        """Yield the entries as they are served: groups of fair order last, each by itself."""
        waiting = list(queue)
        fair = [it for it in waiting if not self.is_fifo(it)]
        yield from self.behind_heads(self.without_predictions(waiting))
        for group_id in sorted({it.group_id for it in fair}):
            mine = [it for it in fair if it.group_id == group_id]
            if group_id in self.groups:
                yield from FairOrder(self, self.groups[group_id], mine).served()
            else:
                yield from mine

    def is_fifo(self, request: SessionRequest) -> bool:
        return self.rules_of(request.group_id).queue_order == QueueOrder.FIFO

    def without_predictions(self, waiting: Iterable[SessionRequest]) -> list[SessionRequest]:
        """Return the entries of groups that are first come, first served, in the order that makes heads."""
        return sorted(
            (it for it in waiting if self.is_fifo(it)),
            key=lambda it: (it.is_preemptible, it.queued_at - it.priority * self.rules_of(it.group_id).ageing),
        )

    def behind_heads(self, waiting: Iterable[SessionRequest]) -> Iterator[SessionRequest]:
        """Yield the entries in that order; those behind another session that is the head last, the shortest first."""
        later = []
        for request in waiting:
            group = self.groups.get(request.group_id)
            if group is not None and group.head is not None and group.head.id != request.id and self.is_fifo(request):
                later.append(request)
            else:
                yield request
        yield from sorted(later, key=lambda it: (it.is_preemptible, -it.priority, run_time(it)))


def run_time(request: SessionRequest) -> timedelta:
    """Return what is known of how long a request runs: the prediction, else its limit, else for ever."""
    return next((it for it in (request.predicted, request.duration) if it is not None), timedelta.max)


@dataclass
class FairOrder:
    """Order of one group by fair share; all is computed anew at each step."""

    all: Pass
    group: Group
    queue: list[SessionRequest]

    def served(self) -> Iterator[SessionRequest]:
        """Yield each request once it is its turn."""
        due = self._due()
        for is_preemptible in (False, True):
            left = [it for it in self.queue if it.is_preemptible == is_preemptible]
            while left:
                request = self._next(left, due)
                yield request
                left = [it for it in left if it is not request]

    def _next(self, left: list[SessionRequest], due: Mapping[Holder, float]) -> SessionRequest:
        """Return the first request of the first member of the first project or user."""
        first: dict[Holder, SessionRequest] = {}
        for request in sorted(left, key=lambda it: (-it.priority, *self._place(it))):
            first.setdefault(_holder(request), request)

        def rank(holder: Holder, member: Holder) -> tuple[object, ...]:
            request = first[member]
            return self._key(holder, request, due), *self._place(request), holder

        branches = {_branch(member) for member in first}
        best = {
            branch: min((it for it in first if _branch(it) == branch), key=lambda it: rank(it, it))
            for branch in branches
        }
        return first[best[min(branches, key=lambda it: rank(it, best[it]))]]

    def _place(self, request: SessionRequest) -> tuple[datetime, int]:
        return request.queued_at, self.queue.index(request)

    def _due(self) -> dict[Holder, float]:
        """Return the part of the group that each project, member and user is assured of: half of what is due."""
        members = {_holder(it) for it in self.queue} | {_holder(it) for it in self.group.running.values()}
        holders = members | {_branch(member) for member in members}
        part = {}
        for holder in holders:
            siblings = [other for other in holders if _parent(other) == _parent(holder)]
            part[holder] = self._weight(holder) / sum(self._weight(other) for other in siblings)
        return {it: 0.5 * part[it] * (part[_parent(it)] if _parent(it) != (0, 0) else 1) for it in holders}

    def _weight(self, holder: Holder) -> int:
        own = (0, holder[1]) if holder[1] else holder
        return next(
            (w for it, w in self.all.snapshot.weights.items() if tuple(it) == own), self.group.rules.default_weight
        )

    def _key(self, holder: Holder, request: SessionRequest, due: Mapping[Holder, float]) -> tuple[object, ...]:
        now, owner_id = self.all.now, request.owner_id
        if not any(it.owner_id == owner_id for it in self.group.running.values()):
            ends = [
                it.at
                for (pool, who), it in self.all.snapshot.used.items()
                if pool == self.group.id and who[1] == owner_id
            ]
            since = max([request.queued_at, *ends])
            if now - since >= self.group.rules.starvation_limit:
                return 0, 0, 0, since
        mine = [it for it in self.group.running.values() if holder in (_holder(it), _branch(_holder(it)))]
        held = [
            Fraction(sum(it.charge_percent * self._weighted(it)[n] for it in mine), (1, 1, 1000)[n]) for n in range(3)
        ]
        mean = (1, 1, self._totals()[2] / (self._plain_gpus() or 1))
        wanted = [held[n] + request.charge_percent * amounts_of(request)[n] * mean[n] for n in range(3)]
        is_assured = self._part(wanted) / 100 <= due[holder]
        used = [Fraction(fsum(column) + float(3600 * held[n] / 100)) for n, column in enumerate(self._used(holder))]
        return 1, -request.priority, not is_assured, round(10**6 * self._part(used) / self._weight(holder))

    def _used(self, holder: Holder) -> list[list[float]]:
        """Return what the sessions of a holder, ended or running, have used: each by itself, decayed."""
        rate = log(2) / self.group.rules.half_life.total_seconds()
        uses: list[list[float]] = [[], [], []]
        for (pool, who), usage in self.all.snapshot.used.items():
            if pool == self.group.id and holder in (tuple(who), _branch((who[0], who[1]))):
                left = exp(-rate * max(0.0, (self.all.now - usage.at).total_seconds()))
                for n, amount in enumerate((usage.cpu_seconds, usage.memory_byte_seconds, usage.fgpu_milli_seconds)):
                    uses[n].append(amount * left)
        for it in self.group.running.values():
            if holder in (_holder(it), _branch(_holder(it))):
                ran = max(timedelta(0), self.all.now - it.started_at).total_seconds()
                for n in range(3):
                    uses[n].append(
                        self._weighted(it)[n]
                        / (1, 1, 1000)[n]
                        * ((1 - exp(-rate * ran)) / rate * it.charge_percent / 100)
                    )
        return uses

    def _part(self, amounts: Sequence[Fraction]) -> float:
        """Return the largest part of what the group has."""
        return max((float(it / whole) for it, whole in zip(amounts, self._totals(), strict=True) if whole), default=0.0)

    def _totals(self) -> list[Fraction]:
        views = [host.view for host in self.group.hosts]
        gpus = Fraction(sum(gpu.capacity_milli * gpu.weight for it in views for gpu in it.gpus), 1000)
        return [Fraction(sum(it.cpu for it in views)), Fraction(sum(it.memory_bytes for it in views)), gpus]

    def _plain_gpus(self) -> int:
        return sum(gpu.capacity_milli for host in self.group.hosts for gpu in host.view.gpus)

    def _weighted(self, session: RunningSession) -> tuple[int, int, int]:
        """Return the amounts of a running session, its GPU in thousandths by the weight that it, or its GPUs, have."""
        cpu, memory, milli = amounts_of(session)
        weights = {gpu.id: gpu.weight for host in self.group.hosts for gpu in host.view.gpus}
        weight = session.gpu_weight
        if weight is None and milli:
            weight = floor(sum(share * weights.get(gpu, 1000) for gpu, share in session.shares) / milli)
        return cpu, memory, milli * (weight or 0)


def amounts_of(session: SessionRequest | RunningSession) -> tuple[int, int, int]:
    """Return the cores, bytes and milli-fGPU of a session."""
    return session.shape[:3]


def _holder(session: SessionRequest | RunningSession) -> Holder:
    return session.project_id or 0, session.owner_id


def _branch(holder: Holder) -> Holder:
    return (holder[0], 0) if holder[0] else holder


def _parent(holder: Holder) -> Holder:
    return (holder[0], 0) if holder[0] and holder[1] else (0, 0)


@dataclass
class Outcome:
    """What a pass must decide: the sessions that start, why the others wait, in order, and when they start."""

    started: list[RunningSession]
    waiting: list[tuple[str, Reason]]
    starts: dict[str, datetime]
    heads: dict[int, str]
    left: Pass


def decide(snapshot: Snapshot, now: datetime) -> Outcome:
    """Return the outcome of a pass over a snapshot."""
    state = Pass(snapshot, now)
    started, left = state.serve(snapshot.queue)
    waiting = [(it.id, state.reason(it)) for it in left if not it.is_alternative]
    heads = {group.id: group.head.id for group in state.groups.values() if group.head is not None}
    return Outcome(started, waiting, forecast(snapshot, now), heads, state)


def forecast(snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Return when the waiting requests start if all sessions use their time limits: pass by pass."""
    state = Pass(snapshot, now)
    _, left = state.serve(snapshot.queue)
    starts: dict[str, datetime] = {}
    for group in state.groups.values():  # whoever is overdue by more than the grace may stay for ever
        group.endless = frozenset(name for name, one in group.running.items() if group.is_unknown(one, now))
        for name in group.endless:
            group.running[name] = group.running[name]._replace(ends_at=None)
    while left:
        ends = [it.ends_at for group in state.groups.values() for it in group.running.values() if it.ends_at]
        if not ends:
            break
        moment = min(ends)
        state.now = max(moment, now)
        for group in state.groups.values():
            for one in [it for it in group.running.values() if it.ends_at and it.ends_at <= state.now]:
                state.end(group, one)
            group.head = group.reserved = None
        for request in state.behind_heads(left):
            if request.id not in starts and state.start(request) is not None:
                starts[request.id] = state.now
        left = [it for it in left if it.id not in starts]
    return starts
