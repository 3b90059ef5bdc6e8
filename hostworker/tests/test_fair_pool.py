"""Threads that owners share: one with many calls does not hold up one with few."""

import threading
from collections.abc import Callable

from hostworker.containers.fair_pool import FairPool
from tests.wait import SECONDS


def blocked(gate: threading.Event, done: list[int], owner: int) -> Callable[[], None]:
    """Return a call that notes its owner once the gate opens."""

    def call() -> None:
        assert gate.wait(SECONDS)
        done.append(owner)

    return call


def test_an_owner_with_few_calls_passes_one_with_many() -> None:
    pool, gate, served = FairPool(4, 2, "test"), threading.Event(), threading.Event()
    done: list[int] = []
    for _ in range(100):
        pool.submit(1, blocked(gate, done, 1))
    pool.submit(2, served.set)
    assert served.wait(SECONDS)  # although all of the first owner's calls are blocked
    assert done == []
    gate.set()
    pool.end()


def test_owners_take_turns_and_errors_stop_nobody() -> None:
    pool, gate = FairPool(1, 1, "test"), threading.Event()
    done: list[int] = []
    finished = threading.Semaphore(0)

    def fail() -> None:
        raise ValueError("no")

    pool.submit(1, blocked(gate, done, 1))
    for owner in (1, 1, 2, 3, 2):
        pool.submit(owner, blocked(gate, done, owner))
    pool.submit(3, fail)
    pool.submit(4, lambda: finished.release())
    gate.set()
    assert finished.acquire(timeout=SECONDS)
    pool.submit(5, lambda: finished.release())
    assert finished.acquire(timeout=SECONDS)
    pool.end()
    assert done == [1, 1, 2, 3, 1, 2]


def test_nothing_is_begun_after_the_end() -> None:
    pool = FairPool(1, 1, "test")
    done: list[int] = []
    pool.end()
    pool.submit(1, lambda: done.append(1))
    assert done == []
