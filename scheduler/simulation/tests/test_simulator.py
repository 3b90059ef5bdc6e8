"""Replay of sessions with a virtual clock.

Seen to fail when ends after the last arrival are dropped, and when reservations outlive their pass.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from accounts.limits import Amounts, PolicyLimits
from scheduler.core.tests.timelines import HOUR, at, job, many, worlds
from scheduler.core.tests.worlds import NOW, UNLIMITED, make_host, make_request, make_snapshot
from scheduler.core.types import LimitHolder, RunningSession, Snapshot
from scheduler.simulation.simulator import Job, jain, simulate


def hourly(name: str, joins: float, fgpu: int = 1000, owner: int = 1) -> Job:
    """Return an unbounded session that runs for an hour."""
    return Job(make_request(name, fgpu, owner=owner)._replace(queued_at=at(joins)), HOUR)


def one_gpu(gpus: int = 1) -> Snapshot:
    """Return an empty host, and two users without limits."""
    return make_snapshot([make_host(1, [1000] * gpus)], [], {1: UNLIMITED, 2: UNLIMITED})


def test_a_replay_sums_up_waits() -> None:
    outcome = simulate(one_gpu(), [hourly("a", 0), hourly("b", 0.5), hourly("c", 0.5), hourly("giant", 4, 2000)])
    assert outcome.starts == {"a": at(0), "b": at(1), "c": at(2)}
    assert outcome.mean_wait == timedelta(minutes=40)
    assert outcome.p95_wait == outcome.max_wait == 1.5 * HOUR
    assert outcome.never_started == 1
    assert outcome.utilisation == pytest.approx(3 / 4)


def test_more_hosts_shorten_the_wait() -> None:
    jobs = [hourly(str(n), n / 10) for n in range(10)]
    assert simulate(one_gpu(2), jobs).mean_wait < simulate(one_gpu(), jobs).mean_wait


def test_a_replayed_session_ends_with_its_job() -> None:
    early = Job(make_request("early", 1000)._replace(duration=3 * HOUR), HOUR)
    assert simulate(one_gpu(), [early, hourly("next", 0)]).starts["next"] == at(1)


def test_running_sessions_end_at_bounds_and_count_against_limits() -> None:
    running = (RunningSession("x", 1, 1, 1, 1, ((100, 1000),), at(-1), at(2)),)
    owner = LimitHolder(limits=PolicyLimits(sessions=1), used=Amounts(cpu=1, memory=1, fgpu=1000, sessions=1))
    world = make_snapshot([make_host(1, [0, 1000])], [], {1: owner})
    assert simulate(replace(world, running=running), [hourly("a", 0)]).starts == {"a": at(2)}


def test_fragmentation_is_the_part_jobs_could_not_use() -> None:
    jobs = [hourly("a", 0, 600), hourly("b", 0.999, 600)]
    assert simulate(one_gpu(), jobs).fragmentation == 1  # 0.4 is free and of no use to anybody
    assert simulate(one_gpu(2), jobs).fragmentation == pytest.approx(400 / 1400)


def test_fairness_is_one_for_equal_service() -> None:
    both = [hourly("a", 0, owner=1), hourly("b", 0, owner=2)]
    assert simulate(one_gpu(2), both).fairness == 1
    assert simulate(one_gpu(), both).fairness == pytest.approx(jain([1, 0.5])) == pytest.approx(0.9)


@many
@given(worlds())
def test_a_replay_is_deterministic_and_starts_each_job_once(world: Snapshot) -> None:
    jobs = [job(request) for request in world.queue]
    outcome = simulate(world, jobs)
    assert all(start >= NOW for start in outcome.starts.values())
    assert len(outcome.starts) + outcome.never_started == len(jobs)
    assert 0 <= outcome.utilisation <= 1
    assert outcome == simulate(world, jobs)
