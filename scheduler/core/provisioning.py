"""Which hosts a provider is to make: what-if placement of the wait queue on hosts that there could be. Pure.

Requests are taken in their order. Each goes to a host that comes already or was decided before it, by best fit; where
none can take it, hosts of the type are added that cost least for each of the next requests that they could hold
(a greedy form of variable-sized bin packing). A host whose requests the others can take is left out again,
unless it would then be wanted again.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.host_types import empty_host, has_traits
from scheduler.core.capacity.member_search import MemberSearch
from scheduler.core.capacity.placement_policy import PackPolicy, split_of
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import ComingHost, HostType, RunningSession, SessionRequest, Shape
from scheduler.core.waiting.forecast import StartEstimate

LOOK_AHEAD: Final = 100  # requests by which types are compared
MAX_ROUNDS: Final = 4  # in which hosts are left out; whoever then takes the room of another would want them again
COMES_TEXT: Final = "a host that was asked for comes by then"
_PACK: Final = PackPolicy()


class Budget(NamedTuple):
    """How many more hosts may be made, and what they may cost together in an hour; None: whatever they cost."""

    hosts: int
    cost_milli: int | None = None

    def allows(self, kind: HostType, count: int) -> bool:
        """Return whether so many hosts of a type may be made."""
        return count <= self.hosts and (self.cost_milli is None or count * kind.cost_milli <= self.cost_milli)

    def less(self, kinds: Sequence[HostType]) -> "Budget":
        """Return what is left of it once these hosts are made."""
        cost = None if self.cost_milli is None else self.cost_milli - sum(kind.cost_milli for kind in kinds)
        return Budget(self.hosts - len(kinds), cost)


class Wanted(NamedTuple):
    """The hosts that are to be made, and the ids of the requests for which they and those that come have room."""

    hosts: tuple[HostType, ...]
    covered: frozenset[str]


class _Bin(NamedTuple):
    kind: HostType
    capacity: HostCapacity


def hosts_wanted(
    queue: Sequence[SessionRequest],
    limits: HolderLimits,
    coming: Sequence[HostType],
    types: Sequence[HostType],
    budget: Budget,
) -> Wanted:
    """Return which hosts of `types` are to be made for a queue, beside those that come already.

    `limits` are what limits leave: who is at theirs, and whom no type could hold, makes no host.
    """
    made: list[HostType] = []
    rounds = 0
    while True:
        # Once all hosts are there from the start, best fit may take others than as they came: so it is tried again.
        served, added = _pack(queue, limits.copy(), [*coming, *made], types, budget.less(made))
        if added:
            made += added
            continue
        needed = _needed(served, coming, made)
        if len(needed) == len(made) or rounds == MAX_ROUNDS:
            return Wanted(tuple(made), frozenset(request.id for request in served))
        made, rounds = needed, rounds + 1


def starts_on(
    queue: Sequence[SessionRequest],
    limits: HolderLimits,
    coming: Sequence[ComingHost],
    starts: Mapping[str, StartEstimate],
) -> dict[str, StartEstimate]:
    """Return when those of a queue start, by id, that have room on hosts that come, and start later without.

    `starts` are the estimates without; `limits` are counted down.
    """
    hosts = sorted(coming, key=attrgetter("at"))
    bins, found = _bins([host.kind for host in hosts]), dict[str, StartEstimate]()
    for entries in _by_session(queue) if hosts else ():
        start = starts.get(entries[0].id)
        able = [entry for entry in entries if not limits.are_exceeded_by(entry)]
        if able and start is not None and start.at <= hosts[0].at:
            _count(limits, able[0])  # by then it has started elsewhere
        elif (found_room := _take_one(able, bins)) is not None:
            request, taken = found_room
            _count(limits, request)
            at = max(hosts[index].at for index in taken)
            if start is None or at < start.at:
                found[request.id] = StartEstimate(at, COMES_TEXT)
    return found


def _by_session(queue: Sequence[SessionRequest]) -> list[list[SessionRequest]]:
    """Return the entries of each session, of which those by GPU memory have several."""
    found: dict[str, list[SessionRequest]] = {}
    for entry in queue:
        found.setdefault(entry.id, []).append(entry)
    return [*found.values()]


def _pack(
    queue: Sequence[SessionRequest],
    limits: HolderLimits,
    given: Sequence[HostType],
    types: Sequence[HostType],
    budget: Budget,
) -> tuple[list[SessionRequest], list[HostType]]:
    """Return which requests have room on the hosts given and on those that are added, and the latter."""
    bins, served, added = _bins(given), list[SessionRequest](), list[HostType]()
    sessions = _by_session(queue)
    for position, entries in enumerate(sessions):
        able = [entry for entry in entries if not limits.are_exceeded_by(entry)]
        found = _take_one(able, bins)
        if found is None:
            behind = [first for first, *_ in sessions[position + 1 : position + LOOK_AHEAD]]
            options = (_cheapest([entry, *behind], bins, types, budget.less(added)) for entry in able)
            more = next(filter(None, options), [])
            added += more
            bins += _bins(more, len(bins))
            found = _take_one(able, bins) if more else None
        if found is not None:
            served.append(found[0])
            _count(limits, found[0])
    return served, added


def _needed(served: Sequence[SessionRequest], given: Sequence[HostType], added: Sequence[HostType]) -> list[HostType]:
    """Return those of the added hosts without which the requests would not all have room."""
    for position in range(len(added)):
        rest = [*added[:position], *added[position + 1 :]]
        bins = _bins([*given, *rest])
        if all(_take(request, bins) for request in served):
            return _needed(served, given, rest)
    return list(added)


def _cheapest(
    requests: Sequence[SessionRequest], bins: Sequence[_Bin], types: Sequence[HostType], budget: Budget
) -> list[HostType]:
    """Return hosts of one type by which the first request has room, those that cost least for each that they hold.

    `bins` are those that there are, which have no room for it by themselves.
    """
    options, spans_hosts = [], requests[0].shape.spans_hosts
    for kind in types:
        for count in range(1, min(budget.hosts, requests[0].members) + 1):
            if not budget.allows(kind, count):
                break
            more = _bins([kind] * count, len(bins))
            beside = [each._replace(capacity=each.capacity.copy()) for each in bins] if spans_hosts else []
            if _take(requests[0], [*beside, *more]):
                held = 1 + sum(bool(_take(request, more)) for request in requests[1:])
                size = kind.gpu_count, kind.cpu, kind.memory_bytes, kind.name
                options.append(((count * kind.cost_milli / held, count / held, size), [kind] * count))
                break
            if not spans_hosts:
                break
    return min(options, key=lambda option: option[0])[1] if options else []


def _bins(kinds: Sequence[HostType], begin: int = 0) -> list[_Bin]:
    return [_Bin(kind, empty_host(kind, index)) for index, kind in enumerate(kinds, begin)]


def _take_one(entries: Sequence[SessionRequest], bins: Sequence[_Bin]) -> tuple[SessionRequest, list[int]] | None:
    """Take what one of the entries of a session needs, the first that can be held; return it as well."""
    return next(((entry, taken) for entry in entries if (taken := _take(entry, bins))), None)


def _take(request: SessionRequest, bins: Sequence[_Bin]) -> list[int]:
    """Take what a request needs from hosts that can hold it; return the indexes of these, [] if none could."""
    shape = request.shape
    able = [each.capacity for each in bins if has_traits(each.kind, shape.traits)]
    parts = [] if shape.pins else _parts(shape._replace(traits=()), able)
    for host, part in parts:
        host.take(part, split_of(_PACK, host, part))
    return [host.index for host, _ in parts]


def _parts(shape: Shape, hosts: Sequence[HostCapacity]) -> list[tuple[HostCapacity, Shape]]:
    """Return which host takes what of a shape; [] where they have no room."""
    if not shape.spans_hosts:
        fitting = [host for host in hosts if host.fits(shape)]
        best = min(fitting, key=lambda host: (host.total_free, host.cpu, host.index), default=None)
        return [] if best is None else [(best, shape)]
    by_index = {host.index: host for host in hosts}
    chosen = MemberSearch(shape, hosts).choose(shape.members, shape.mode)
    return [
        (by_index[index], shape.of_members(count, with_main=not position))
        for position, (count, index) in enumerate(chosen)
    ]


def _count(limits: HolderLimits, request: SessionRequest) -> None:
    """Count a request against limits, as if it had started."""
    for each in request.member_ids or (request.id,):
        cpu, memory_bytes, fgpu_milli = request.amounts_of(each)
        shares = ((0, fgpu_milli),)
        session = RunningSession(each, request.owner_id, 0, cpu, memory_bytes, shares, project_id=request.project_id)
        limits.count(session, -1)
