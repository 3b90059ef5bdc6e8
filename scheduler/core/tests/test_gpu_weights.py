"""GPUs of faster models count more in fair share; where all weigh 1, nothing changes, to the bit."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import exp, fsum, log
from random import Random

import pytest

from scheduler.core.queue.fair_share import FairShares
from scheduler.core.tests.worlds import NOW, make_host, make_request
from scheduler.core.types import Association, DecayedUsage, HostView, Rules, RunningSession

HOUR = timedelta(hours=1)
ME, OTHER = Association(0, 1), Association(0, 2)
RULES = Rules()


def host_of(number: int, *weights: int) -> HostView:
    host = make_host(number, [1000] * len(weights), cpu=64)
    gpus = [gpu._replace(weight=weight) for gpu, weight in zip(host.gpus, weights, strict=True)]
    return replace(host, gpus=tuple(gpus))


def session_on(host: HostView, milli: Sequence[int], owner: int = 1, weight: int | None = None) -> RunningSession:
    shares = tuple((gpu.id, amount) for gpu, amount in zip(host.gpus, milli, strict=False) if amount)
    begun = NOW - 3 * HOUR
    return RunningSession(f"{owner}", owner, host.id, 1, 1, shares, begun, gpu_weight=weight)


def use(hosts: Sequence[HostView], session: RunningSession) -> float:
    return FairShares(hosts, RULES, [session], {}, {}).base(Association(0, session.owner_id), NOW)[2]


def test_a_gpu_of_twice_the_weight_counts_twice() -> None:
    plain, fast = host_of(1, 1000), host_of(2, 2000)
    hosts = [plain, fast]
    assert use(hosts, session_on(fast, [500])) == 2 * use(hosts, session_on(plain, [500])) > 0
    shares = FairShares(hosts, RULES, [session_on(plain, [1000]), session_on(fast, [1000], owner=2)], {}, {})
    assert shares.use(OTHER, NOW) == pytest.approx(2 * shares.use(ME, NOW), abs=1)
    assert shares.parts(NOW)[OTHER] == pytest.approx(2 * shares.parts(NOW)[ME])


def test_several_gpus_count_by_the_mean_of_their_weights() -> None:
    mixed = host_of(1, 1000, 2000, 4000)
    assert use([mixed], session_on(mixed, [1000, 1000])) == pytest.approx(3 * use([mixed], session_on(mixed, [1000])))


def test_running_sessions_keep_the_weight_they_were_given() -> None:
    host = host_of(1, 5000)
    assert use([host], session_on(host, [1000], weight=2000)) == 2 * use([host_of(1, 1000)], session_on(host, [1000]))


def test_equal_weights_are_as_none() -> None:
    ranks = []
    for weight in (1000, 4000):
        hosts = [host_of(1, weight, weight), host_of(2, weight, weight)]
        shares = FairShares(hosts, RULES, [session_on(hosts[0], [1000, 1000])], {}, {})
        request = make_request("more", 1000)
        due = shares.assured(shares.due([ME, OTHER]))
        ranks.append([shares.key(ME, request, NOW, due), shares.key(OTHER, request._replace(owner_id=2), NOW, due)])
    assert ranks[0] == ranks[1]


def test_weights_of_one_change_no_bit() -> None:
    """The formulas without weights give the same floats and ranks."""
    random = Random(115)
    for _ in range(300):
        hosts = [host_of(number, *[1000] * random.randint(0, 4)) for number in range(1, random.randint(2, 5))]
        running = [
            session_on(random.choice(hosts), random.choices((0, 10, 330, 1000), k=4), random.choice((1, 2)))._replace(
                session_id=f"s{number}",
                cpu=random.randint(0, 7),
                charge_percent=random.choice((100, 50, 33)),
                started_at=NOW - random.randint(0, 10**6) * timedelta(seconds=0.37),
                gpu_weight=random.choice((None, 1000)),
            )
            for number in range(random.randint(0, 6))
        ]
        past = DecayedUsage(random.random() * 1e6, random.random() * 1e9, random.random() * 1e9, NOW - 5 * HOUR)
        shares = FairShares(hosts, RULES, running, {ME: past}, {})
        request = make_request("more", random.choice((0, 20, 1500)))._replace(charge_percent=random.choice((100, 33)))
        due = shares.assured(shares.due([ME, OTHER]))
        mine = [it for it in running if it.owner_id == 1]
        held = [sum(it.charge_percent * it.shape[:3][n] for it in mine) for n in range(3)]
        wanted = [held[n] + request.charge_percent * request.shape[:3][n] for n in range(3)]
        gpus = 1000 * sum(len(it.gpus) for it in hosts)
        totals = [sum(it.cpu for it in hosts), sum(it.memory_bytes for it in hosts), gpus]
        rate = log(2) / RULES.half_life.total_seconds()
        left = exp(-rate * (5 * HOUR).total_seconds())
        seconds = [(1 - exp(-rate * (NOW - it.started_at).total_seconds())) / rate for it in mine]
        ran = [(it.shape[:3], each * it.charge_percent / 100) for it, each in zip(mine, seconds, strict=True)]
        base = [fsum([past[:3][n] * left, *(amounts[n] * each for amounts, each in ran)]) for n in range(3)]
        assert shares.base(ME, NOW) == tuple(base)

        def part(amounts: Sequence[float], totals: Sequence[int] = totals) -> float:
            return max(amount / total for amount, total in zip(amounts, totals, strict=True) if total)

        rank = round(10**6 * part([base[n] + 3600.0 * held[n] / 100 for n in range(3)]) / 100)
        is_assured = part(wanted) / 100 <= due[ME]
        if mine:
            assert shares.key(ME, request, NOW, due) == (1, 0, not is_assured, rank)
