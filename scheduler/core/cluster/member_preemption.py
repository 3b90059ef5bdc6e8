"""Preemption for clusters that may span hosts: who ends, on whatever hosts, so that all members find room. Pure.

For each host the fewest victims are found for one member more, two more, and so on; the hosts are then combined like
the items of a knapsack, so that as few sessions end as possible, and among as many the least work is lost. A cluster
that ends on several hosts counts on each of them: what is not needed after all is spared, the oldest first. Where the
first member has amounts of its own, a host may take it too, beside fewer others; exactly one of the hosts does.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.member_search import MemberSearch
from scheduler.core.capacity.placement_policy import split_of
from scheduler.core.cluster.candidates import MAX_VICTIMS, Candidates
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.types import MemberAmounts, Placed, RunningSession, SessionRequest
from scheduler.core.victims import MICROSECOND

MAX_HOSTS: Final = 64  # on which sessions may end for one cluster: where it takes the fewest for a member
ONE_SESSION: Final = 1 << 80  # of costs: above all microseconds that a session could have run
AVOIDED: Final = 1 << 120  # above any number of sessions
Victims = Sequence[RunningSession]


class Offer(NamedTuple):
    """Members that a host takes beyond those that it has room for now, with a first one of its own amounts or not."""

    members: int  # more of the others; fewer where the first takes their place
    has_main: bool
    cost: int
    victims: Victims


def find_for_members(
    group: GroupState, request: SessionRequest, candidates: Candidates, able: Sequence[HostCapacity], now: datetime
) -> tuple[tuple[Placed, ...], Victims] | None:
    """Return where the members go once sessions on the `able` hosts have ended, and which do.

    None where none need to, or their end would not be enough.
    """
    shape, search = request.shape, group.capacity.member_search(request.shape).copy()
    later = {host.host_id: candidates.settled(host) for host in able}
    if group.head is not None and group.head.id == request.id:
        later = {host.host_id: host.copy() for host in group.reserved_hosts} | later
    for host in later.values():
        host.is_reserved = False
        search.update(host)
    if search.choose(shape.members, shape.mode):
        return None
    victims = _find_victims(group, request, search, candidates, able, now)
    if victims is None:
        return None
    needed = _needed(search, later, request, victims)
    placed = []
    chosen = search.choose(shape.members, shape.mode, request.avoided_host_ids)
    for place, (count, index) in enumerate(chosen):
        host = group.capacity.hosts[index]
        then, part = later.get(host.host_id) or host.copy(), shape.of_members(count, with_main=not place)
        placed.append((count, host.host_id, then.take(part, split_of(group.capacity.policy, then, part))))
    return tuple(placed), needed


def _find_victims(
    group: GroupState,
    request: SessionRequest,
    search: MemberSearch,
    candidates: Candidates,
    able: Sequence[HostCapacity],
    now: datetime,
) -> Victims | None:
    """Return who ends at the least cost for all to find room, on hosts of one model; None where that is not enough."""
    able = [host for host in able if host.host_id in candidates.may_end]
    for_main = _cheapest_hosts(able, request, candidates, request.main, now) if request.main else []
    able = _cheapest_hosts(able, request, candidates, request.each, now)
    found = []
    for model in sorted({search.model_of(host) for host in (group.capacity.hosts if request.main else able)}):
        rooms = {index: 1 if request.mode == "spread" else count for count, index in search.counts_on(model)}
        offers = {
            host.index: [*_offers(host, request, candidates, rooms.get(host.index, 0), now)]
            for host in able
            if search.model_of(host) == model
        }
        for index, offer in _main_offers(search, model, rooms, request, candidates, for_main, now):
            offers.setdefault(index, []).append(offer)
        needed = request.members - (request.main is not None) - sum(rooms.values())
        if cheapest := _cheapest(offers.values(), needed, is_main_left=request.main is not None):
            found.append(cheapest)
    return min(found, key=lambda it: it[0])[1] if found else None


def _cheapest_hosts(
    hosts: Iterable[HostCapacity], request: SessionRequest, candidates: Candidates, one: MemberAmounts, now: datetime
) -> list[HostCapacity]:
    """Return the hosts where it may take the fewest victims to have a member of such amounts."""
    member = request._replace(cpu=one[0], memory_bytes=one[1], fgpu_milli=one[2], members=1)
    return sorted(hosts, key=lambda host: (candidates.bound(host, member, now), host.index))[:MAX_HOSTS]


def _offers(
    host: HostCapacity, request: SessionRequest, candidates: Candidates, room: int, now: datetime
) -> Iterator[Offer]:
    """Yield what one member more than there is room for costs on a host, then two more, as far as it goes."""
    most = request.shape.most_on(host.host_id) - room
    for more in range(1, most + 1):
        victims = candidates.victims_on(host, request.shape.of_members(room + more), MAX_VICTIMS)
        if victims is None:
            break
        yield Offer(more, False, _cost(host, request, victims, now), victims)


def _main_offers(
    search: MemberSearch,
    model: str,
    rooms: Mapping[int, int],
    request: SessionRequest,
    candidates: Candidates,
    hosts: Sequence[HostCapacity],
    now: datetime,
) -> Iterator[tuple[int, Offer]]:
    """Yield, by index of the host, what the first member costs there and how many others it takes beside it then.

    On these hosts, and on others that have room for it now, of which one of each kind is enough.
    """
    for beside, _, index in search.kinds((0, (), model), [host.host_id for host in hosts]):
        here = beside if request.mode != "spread" else 0
        yield index, Offer(here - rooms.get(index, 0), True, 0, ())
    for host in hosts:
        is_shared = search.model_of(host) == model
        is_able = is_shared or (request.main is not None and not request.main[2])
        if not is_able or (request.pins and request.pins[0] != host.host_id):
            continue
        most = request.shape.most_on(host.host_id) - 1 if is_shared else 0
        for here in range(min(most, max(0, search.beside_main(host))), most + 1):
            victims = candidates.victims_on(host, request.shape.of_members(1 + here, with_main=True), MAX_VICTIMS)
            if victims is None:
                break
            yield host.index, Offer(here - rooms.get(host.index, 0), True, _cost(host, request, victims, now), victims)


def _cost(host: HostCapacity, request: SessionRequest, victims: Victims, now: datetime) -> int:
    """Return what it costs that these end on a host."""
    extra = AVOIDED if victims and host.host_id in request.avoided_host_ids else 0
    return extra + ONE_SESSION * len(victims) + sum((now - victim.started_at) // MICROSECOND for victim in victims)


def _cheapest(offers: Collection[Sequence[Offer]], needed: int, *, is_main_left: bool) -> tuple[int, Victims] | None:
    """Return what it costs at least to have so many members more, and who ends; None where the offers do not do.

    `is_main_left`: one of the offers taken has to be for the first member; a second one never costs less than others.
    """
    if sum(max([0, *(offer.members for offer in of_host)]) for of_host in offers) < needed:
        return None
    # More than needed counts up to what the first member may take the place of.
    most = max(needed, 0) + max([0, *(-offer.members for of_host in offers for offer in of_host)])
    best: dict[tuple[int, bool], tuple[int, tuple[Offer, ...]]] = {(0, not is_main_left): (0, ())}  # by members
    for of_host in offers:
        for (members, has_main), (cost, taken) in [*best.items()]:
            for offer in of_host:
                reached = min(most, members + offer.members), has_main or offer.has_main
                other = best.get(reached)
                if other is None or cost + offer.cost < other[0]:
                    best[reached] = cost + offer.cost, (*taken, offer)
    able = [found for (members, has_main), found in best.items() if has_main and members >= needed]
    if not able:
        return None
    cost, taken = min(able, key=lambda found: found[0])
    return cost, [victim for offer in taken for victim in offer.victims]


def _needed(search: MemberSearch, later: dict[int, HostCapacity], request: SessionRequest, victims: Victims) -> Victims:
    """Return the victims that have to end for all to find room, clusters whole; in the search they have ended."""
    wholes: dict[str, dict[str, RunningSession]] = {}
    for victim in victims:
        wholes.setdefault(victim.cluster_id or victim.session_id, {})[victim.session_id] = victim

    def end(members: dict[str, RunningSession], sign: int) -> None:
        for victim in members.values():
            if victim.host_id in later:
                later[victim.host_id].give_back(victim.shape, victim.shares, sign)
                search.update(later[victim.host_id])

    for members in wholes.values():
        end(members, 1)
    needed: list[RunningSession] = []
    for members in sorted(wholes.values(), key=lambda it: min(victim.started_at for victim in it.values())):
        end(members, -1)
        if not search.choose(request.members, request.mode):
            end(members, 1)
            needed += members.values()
    return needed
