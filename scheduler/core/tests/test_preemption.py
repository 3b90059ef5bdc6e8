"""Which sessions end for a request: the fewest, the youngest, and only where it then fits."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster.candidates import Candidates
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.preemption import find_preemption
from scheduler.core.tests.timelines import many
from scheduler.core.tests.worlds import NOW, make_host, make_request
from scheduler.core.types import RunningSession, Shape, Snapshot
from scheduler.core.victims import fewest_victims

HOUR = timedelta(hours=1)


def running(
    name: str, host: int, shares: Sequence[tuple[int, int]] = (), *, cpu: int = 1, age: int = 1
) -> RunningSession:
    begun = NOW - age * HOUR
    return RunningSession(name, 1, host, cpu, 1, tuple(shares), begun, is_preemptible=True)


def random_host(random: Random) -> tuple[Snapshot, list[RunningSession]]:
    """Return a host of three GPUs with preemptible sessions of many sizes, by the free amounts they leave."""
    free, sessions = [1000, 1000, 1000], []
    for number in range(random.randint(1, 7)):
        device = random.randrange(3)
        milli = random.choice([share for share in (0, 250, 500, 1000) if share <= free[device]])
        free[device] -= milli
        shares = ((device + 1, milli),) if milli else ()
        sessions.append(running(f"r{number}", 1, shares, cpu=random.randint(1, 3), age=random.randint(1, 5)))
    cpu = 20
    host = make_host(1, [1000, 1000, 1000], cpu=cpu, memory=50)
    used = sum(session.cpu for session in sessions)
    gpus = tuple(gpu._replace(free_milli=free[index]) for index, gpu in enumerate(host.gpus))
    ids = {device + 1: gpu.id for device, gpu in enumerate(host.gpus)}
    sessions = [
        session._replace(shares=tuple((ids[gpu], milli) for gpu, milli in session.shares)) for session in sessions
    ]
    view = type(host)(
        id=host.id,
        name=host.name,
        group_id=host.group_id,
        cpu=cpu,
        memory_bytes=50,
        cpu_free=cpu - used,
        memory_free_bytes=50 - len(sessions),
        gpus=gpus,
    )
    return Snapshot(hosts=(view,), queue=(), owners={}, running=tuple(sessions)), sessions


@many
@given(random=st.randoms(use_true_random=False))
def test_no_smaller_set_of_sessions_makes_room(random: Random) -> None:
    world, sessions = random_host(random)
    cluster = ClusterState(world)
    (group,) = cluster.groups.values()
    (host,) = group.capacity.hosts
    shape = Shape(random.randint(1, 20), 1, random.choice((0, 500, 1000, 1500, 2000, 3000)))

    def fits_without(victims: Sequence[RunningSession]) -> bool:
        later = host.copy()
        for victim in victims:
            later.give_back(victim.shape, victim.shares)
        return later.fits(shape)

    sets = [each for count in range(1, len(sessions) + 1) for each in combinations(sessions, count)]
    least = min((len(each) for each in sets if fits_without(each)), default=None)
    victims = fewest_victims(host, sessions, shape, len(sessions))
    assert (victims is None) == (least is None)
    if victims is not None:
        assert fits_without(victims)
        assert len(victims) == least or host.fits(shape)


@many
@given(random=st.randoms(use_true_random=False))
def test_decision_covers_the_request_without_its_victims(random: Random) -> None:
    world, sessions = random_host(random)
    cluster = ClusterState(world)
    (group,) = cluster.groups.values()
    request = make_request("new", random.choice((0, 500, 1000, 1500, 3000)), cpu=random.randint(1, 20), memory=1)
    found = find_preemption(group, request, Candidates(sessions), NOW)
    if found is None:
        return
    ((_, _, shares),) = found.placed
    hold = RunningSession("new", 9, 1, request.cpu, request.memory_bytes, shares)
    was_fitting = group.capacity.find(request.shape) is not None
    cluster.add_running(hold)
    assert cluster.covers(hold) == was_fitting
    for name in found.victim_ids:
        cluster.end(1, name)
    assert cluster.covers(hold)
    assert sum(milli for _, milli in shares) == request.fgpu_milli


def find(hosts: Sequence[int], sessions: Sequence[RunningSession], fgpu: int) -> tuple[str, ...]:
    """Return the victims for a request on hosts with so many GPUs, on which the sessions hold what they hold."""
    views = [make_host(number, [1000] * gpus, cpu=99, memory=99) for number, gpus in enumerate(hosts, 1)]
    cluster = ClusterState(Snapshot(hosts=tuple(views), queue=(), owners={}))
    (group,) = cluster.groups.values()
    for session in sessions:
        cluster.add_running(session)
    found = find_preemption(group, make_request("new", fgpu, memory=1), Candidates(sessions), NOW)
    return found.victim_ids if found else ()


def test_the_fewest_and_then_the_least_work_are_lost() -> None:
    first, second = (make_host(number, [1000]).gpus[0].id for number in (1, 2))
    halves = [running(f"half{n}", 1, [(first, 500)]) for n in range(2)]
    whole = running("whole", 2, [(second, 1000)], age=100)
    assert find([1, 1], [*halves, whole], 1000) == ("whole",)
    assert find([1, 1], [running("a", 1, [(first, 1000)], age=9), running("b", 2, [(second, 1000)])], 1000) == ("b",)


def test_those_who_end_already_are_not_counted_twice() -> None:
    (gpu,) = make_host(1, [1000]).gpus
    ending = running("ending", 1, [(gpu.id, 500)])._replace(is_preemptible=False, preempted_for="other")
    other = running("left", 1, [(gpu.id, 500)])
    assert find([1], [ending, other], 500) == ()
    assert find([1], [ending, other], 1000) == ("left",)


def test_many_small_sessions_are_chosen_without_trying_all() -> None:
    gpu_ids = [gpu.id for gpu in make_host(1, [1000] * 4).gpus]
    sessions = [running(f"s{n:02}", 1, [(gpu_ids[n % 4], 50)], age=n, cpu=0) for n in range(80)]
    victims = find([4], sessions, 1000)
    assert len(victims) == 20
    assert len({int(name[1:]) % 4 for name in victims}) == 1
