"""The sessions that end on one host are the fewest, and of as many those that have run for the shortest time.

Compared with an oracle that tries every set.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations
from random import Random

import pytest

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.tests.worlds import NOW
from scheduler.core.types import GpuView, RunningSession, Shape
from scheduler.core.victims import fewest_victims

MINUTE = timedelta(minutes=1)
MILLI = (50, 100, 250, 300, 500, 700)


def session(name: str, *shares: tuple[int, int], age: int, cpu: int = 1, memory: int = 1) -> RunningSession:
    """Return a session of so many minutes."""
    return RunningSession(name, 1, 1, cpu, memory, tuple(shares), NOW - age * MINUTE, is_preemptible=True)


def host_of(devices: int, sessions: Sequence[RunningSession], *, cpu: int = 999, memory: int = 999) -> HostCapacity:
    """Return a host of so many GPUs of 1000 milli-fGPU on which the sessions run."""
    gpus = [GpuView(device, 1000, 1000) for device in range(devices)]
    host = HostCapacity(host_id=1, index=0, cpu=cpu, memory_bytes=memory, gpus=gpus)
    for one in sessions:
        host.give_back(one.shape, one.shares, -1)
    return host


def youngest_first(sessions: Sequence[RunningSession]) -> list[RunningSession]:
    return sorted(sessions, key=lambda one: (one.started_at, one.session_id), reverse=True)


def random_sessions(random: Random, devices: int, count: int) -> list[RunningSession]:
    """Return sessions within the capacity of the devices; some hold several whole ones and a part."""
    free = [1000] * devices
    found = []
    for number in range(count):
        whole = [device for device in range(devices) if free[device] == 1000]
        shares = {}
        if len(whole) > 1 and random.random() < 0.2:
            shares = dict.fromkeys(random.sample(whole, random.randint(1, len(whole) - 1)), 1000)
        milli = random.choice((0, *MILLI))
        rooms = [device for device in range(devices) if free[device] >= milli > 0 and device not in shares]
        if rooms:
            shares[random.choice(rooms)] = milli
        for device, taken in shares.items():
            free[device] -= taken
        sizes = random.randint(0, 4), random.randint(0, 4)
        found.append(session(f"s{number}", *shares.items(), age=random.randint(0, 9), cpu=sizes[0], memory=sizes[1]))
    return found


def without(host: HostCapacity, victims: Sequence[RunningSession]) -> HostCapacity:
    later = host.copy()
    for victim in victims:
        later.give_back(victim.shape, victim.shares)
    return later


def age_of(victims: Sequence[RunningSession]) -> timedelta:
    return sum((NOW - victim.started_at for victim in victims), timedelta())


def best_of_all(host: HostCapacity, sessions: Sequence[RunningSession], shape: Shape) -> tuple[int, timedelta] | None:
    """Return how many sessions it takes at least, and for how long these have run at least; by trying every set."""
    for count in range(1, len(sessions) + 1):
        ages = [age_of(each) for each in combinations(sessions, count) if without(host, each).fits(shape)]
        if ages:
            return count, min(ages)
    return None


@pytest.mark.parametrize("seed", range(12))
def test_victims_are_the_best_of_all_sets(seed: int) -> None:
    random = Random(seed)
    compared = 0
    while compared < 60:
        devices = random.randint(0, 4)
        sessions = youngest_first(random_sessions(random, devices, random.randint(1, 9)))
        staying = [one for one in sessions if random.random() < 0.1]
        room = {
            name: random.randint(0, 6) + sum(getattr(one, name) for one in sessions) for name in ("cpu", "memory_bytes")
        }
        host = host_of(devices, sessions, cpu=room["cpu"], memory=room["memory_bytes"])
        if random.random() < 0.2:  # somebody else claims some of it
            claimed = ((random.randrange(devices), random.choice(MILLI)),) if devices else ()
            host.give_back(Shape(2, 2, 0), claimed, -1)
        leaving = [one for one in sessions if one not in staying]
        shape = Shape(
            random.randint(0, 9), random.randint(0, 9), random.choice((0, *MILLI, 1000, 1300, 2000, 2500, 3000))
        )
        if host.fits(shape):
            continue
        compared += 1
        found = fewest_victims(host, leaving, shape, len(leaving))
        best = best_of_all(host, leaving, shape)
        assert (found and (len(found), age_of(found))) == best
        if found:
            assert without(host, found).fits(shape)
            assert fewest_victims(host, leaving, shape, len(found) - 1) is None


@pytest.mark.parametrize("seed", range(8))
def test_clusters_end_whole_and_cost_all_members(seed: int) -> None:
    random = Random(seed)
    compared = 0
    while compared < 40:
        sessions = [
            one._replace(cluster_id=random.choice(("", "", "c1", "c2")))
            for one in random_sessions(random, random.randint(1, 4), random.randint(2, 8))
        ]
        elsewhere = [
            session(f"e{number}", age=random.randint(0, 9))._replace(host_id=2, cluster_id=random.choice(("c1", "c2")))
            for number in range(random.randint(0, 3))
        ]
        sums = [sum(getattr(one, name) for one in sessions) for name in ("cpu", "memory_bytes")]
        host = host_of(4, sessions, cpu=sums[0] + random.randint(0, 4), memory=sums[1] + random.randint(0, 4))
        shape = Shape(random.randint(0, 9), random.randint(0, 9), random.choice((0, 300, 1000, 2000, 3000)))
        if host.fits(shape):
            continue
        compared += 1
        clusters = {
            name: {one.session_id: one for one in (*sessions, *elsewhere) if one.cluster_id == name}
            for name in {one.cluster_id for one in sessions} - {""}
        }
        wholes = [[*members.values()] for members in clusters.values()]
        wholes += [[one] for one in sessions if not one.cluster_id]
        sets = [
            [one for whole in some for one in whole] for n in range(len(wholes) + 1) for some in combinations(wholes, n)
        ]
        able = [
            (len(some), age_of(some))
            for some in sets
            if without(host, [it for it in some if it.host_id == 1]).fits(shape)
        ]
        found = fewest_victims(host, youngest_first(sessions), shape, 99, clusters)
        assert (None if found is None else (len(found), age_of(found))) == min(able, default=None)
        ended = {one.session_id for one in found or ()}
        assert all(ended.isdisjoint(whole) or ended.issuperset(whole) for whole in clusters.values())


@pytest.mark.parametrize("seed", range(30))
def test_nobody_ends_in_vain_for_members_with_parts(seed: int) -> None:
    random = Random(seed)
    sessions = youngest_first(random_sessions(random, 4, random.randint(4, 12)))
    host = host_of(4, sessions)
    shape = Shape(3, 3, 3 * random.choice((300, 500, 700)), members=3)
    found = fewest_victims(host, sessions, shape, 99)
    assert (found is None) == (not without(host, sessions).fits(shape))
    if found is not None and not host.fits(shape):
        assert without(host, found).fits(shape)
        assert not any(without(host, [one for one in found if one is not each]).fits(shape) for each in found)


@pytest.mark.parametrize("share", [125, 60, 30])
def test_two_old_sessions_end_rather_than_many_young_ones(share: int) -> None:
    """They were 8, 16 and 32, with the youngest taken first where there were too many sets to try."""
    old = [session(f"old{number}", (0, 500), age=90 + number) for number in range(2)]
    young = [
        session(f"young{device}-{number}", (device, share), age=number)
        for device in range(1, 4)
        for number in range(1000 // share)
    ]
    sessions = youngest_first([*old, *young])
    found = fewest_victims(host_of(4, sessions), sessions, Shape(1, 1, 1000), len(sessions))
    assert found is not None
    assert {one.session_id for one in found} == {"old0", "old1"}


def test_a_part_takes_the_largest_of_one_device() -> None:
    small = [session(f"small{number}", (0, 20), age=number) for number in range(50)]
    large = session("large", (1, 400), age=90)
    rest = [session(f"rest{number}", (1, 20), age=number) for number in range(30)]
    sessions = youngest_first([*small, *rest, large])
    found = fewest_victims(host_of(2, sessions), sessions, Shape(1, 1, 400), len(sessions))
    assert found == [large]


def test_one_session_of_many_devices_ends_rather_than_several() -> None:
    wide = session("wide", *((device, 1000) for device in range(8)), age=90)
    narrow = [session(f"narrow{device:02}", (device, 1000), age=1) for device in range(8, 16)]
    sessions = youngest_first([wide, *narrow])
    assert fewest_victims(host_of(16, sessions), sessions, Shape(1, 1, 8000), 9) == [wide]


def test_cores_and_memory_take_the_largest_sessions() -> None:
    small = [session(f"small{number}", age=number, cpu=1, memory=1) for number in range(40)]
    cores = session("cores", age=90, cpu=20)
    memory = session("memory", age=91, memory=20)
    sessions = youngest_first([*small, cores, memory])
    host = host_of(1, sessions, cpu=60, memory=60)
    found = fewest_victims(host, sessions, Shape(host.cpu + 20, host.memory_bytes + 20, 0), len(sessions))
    assert found is not None
    assert {one.session_id for one in found} == {"cores", "memory"}


def test_at_most_as_many_end_as_may() -> None:
    sessions = youngest_first([session(f"s{number}", (0, 10), age=number) for number in range(100)])
    host = host_of(1, sessions)
    assert fewest_victims(host, sessions, Shape(1, 1, 500), 49) is None
    found = fewest_victims(host, sessions, Shape(1, 1, 500), 50)
    assert found is not None
    assert [one.session_id for one in found] == [f"s{number}" for number in range(50)]


def test_who_is_not_needed_beside_others_stays() -> None:
    """Those who give most of one each suffice, though another gives most of both together."""
    small = [session(f"small{number:02}", age=number) for number in range(60)]
    both = session("both", age=92, cpu=6, memory=6)
    cores, memory = session("cores", age=91, cpu=10), session("memory", age=90, memory=10)
    sessions = youngest_first([*small, both, cores, memory])
    host = host_of(1, sessions, cpu=90, memory=90)
    found = fewest_victims(host, sessions, Shape(host.cpu + 10, host.memory_bytes + 10, 0), len(sessions))
    assert found == [memory, cores]


def test_two_sessions_of_many_devices_end_rather_than_five() -> None:
    wide = [session(f"wide{first}", *((first + it, 1000) for it in range(4)), age=90 + first) for first in (4, 8)]
    narrow = [session(f"narrow{device:02}", (device, 1000), age=1) for device in (0, 1, 2, 3, 12, 13, 14, 15)]
    sessions = youngest_first([*wide, *narrow])
    assert fewest_victims(host_of(16, sessions), sessions, Shape(1, 1, 8000), 9) == wide
