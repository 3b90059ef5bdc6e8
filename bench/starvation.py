"""Counts in random traces with clusters how often the first in line starts later than the scheduler's bound.

A trace runs on the scheduler's state in virtual time. Once hosts are reserved for the first in line, it starts by the
time that time limits promise; until they do, within the longest run of a session (`scheduler/README.md`, "The head").
"""

from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Final, get_args

from scheduler.core.incremental_state import IncrementalState
from scheduler.core.types import (
    EPOCH,
    ClusterMode,
    GpuView,
    HostView,
    PlacementPolicyName,
    Rules,
    SessionRequest,
    Snapshot,
)

MINUTE: Final = timedelta(minutes=1)
LONGEST: Final = 240 * MINUTE  # run of a session
SESSIONS: Final = 40
PART_IN_CLUSTERS: Final = 0.2
LIMITED: Final = 0.0, 0.5, 1.0  # part of the sessions that have time limits, in turn


def bound_broken(traces: int) -> int:
    """Return how many clusters and sessions of so many traces started later than the bound, or never."""
    return sum(_broken(Random(seed), limited=LIMITED[seed % len(LIMITED)]) for seed in range(traces))


def _broken(random: Random, *, limited: float) -> int:
    """Return how many start too late in one trace, in which this part of the sessions has time limits."""
    rules = Rules(placement_policy=random.choice(list(PlacementPolicyName)), reservation_delay=60 * MINUTE)
    hosts = tuple(_host(number, random.choice((2, 4, 8))) for number in range(1, random.randint(3, 7)))
    state = IncrementalState(Snapshot(hosts=hosts, queue=(), owners={}, rules={1: rules}))
    events: list[tuple[datetime, str, SessionRequest | None]] = []
    for number in range(SESSIONS):
        new = _request(f"s{number:02}", EPOCH + random.randint(0, 600) * MINUTE, random)
        heappush(events, (new.queued_at, new.id, new._replace(duration=LONGEST if random.random() < limited else None)))
    by, late, waiting = dict[str, datetime](), 0, set[str]()
    promised = set[str]()  # of these, those to which time limits have promised a start
    while events:
        now, name, request = heappop(events)
        if request is None:
            state.update([state.cluster.groups[1].running[name]], [])
        else:
            state.add(request)
            waiting.add(name)
        for placement in state.serve(now):
            if placement.session_id in waiting:
                waiting.remove(placement.session_id)
                late += now > by.get(placement.session_id, now)
            heappush(events, (now + random.random() * LONGEST, placement.session_id, None))
        group = state.cluster.groups[1]
        if group.head is not None and group.reservation is not None:
            name, at = group.head.id, group.reservation.at
            if at is None:
                by.setdefault(name, now + LONGEST)
            else:
                by[name] = min(at, by[name]) if name in promised else at
                promised.add(name)
    return late + len(waiting & by.keys())


def _request(name: str, queued_at: datetime, random: Random) -> SessionRequest:
    members = random.randint(2, 8) if random.random() < PART_IN_CLUSTERS else 1
    return SessionRequest(
        *(
            name,
            1,
            1,
            members * random.randint(1, 4),
            members,
            members * random.choice((0, 250, 500, 1000, 1000, 2000)),
        ),
        members=members,
        mode=random.choice(get_args(ClusterMode)),
        member_ids=(name, *(f"{name}.{rank}" for rank in range(1, members))) if members > 1 else (),
        queued_at=queued_at,
    )


def _host(number: int, gpus: int) -> HostView:
    devices = tuple(GpuView(100 * number + index, 1000, 1000) for index in range(gpus))
    return HostView(
        id=number,
        name=f"host-{number}",
        group_id=1,
        cpu=32,
        memory_bytes=64,
        cpu_free=32,
        memory_free_bytes=64,
        gpus=devices,
    )
