"""Counts over several processes: none is missed, and those of a process that was killed are forgotten."""

import itertools
import os
from collections.abc import Callable
from hashlib import blake2b
from multiprocessing import get_context
from multiprocessing.connection import Connection

from proxy.counters import SEED_BYTES, CounterMemory, LocalCounters, SharedCounters

KEY = "user 5"
spawning = get_context("spawn")


def count_for(memory: CounterMemory, order: Connection) -> None:
    """Answer each order (method, key) with the result, in a process of its own."""
    counters = SharedCounters(memory)
    while True:
        method, key = order.recv()
        order.send(getattr(counters, method)(key))


class Counting:
    """A process that counts."""

    def __init__(self, memory: CounterMemory) -> None:
        self._order, other = spawning.Pipe()
        self.process = spawning.Process(target=count_for, args=(memory, other), daemon=True)
        self.process.start()

    def __call__(self, method: str, key: str = KEY) -> int:
        self._order.send((method, key))
        answer: int = self._order.recv()
        return answer

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.join()


def test_processes_see_each_others_connections_until_one_is_killed() -> None:
    memory = CounterMemory(2)
    one, two = Counting(memory), Counting(memory)
    for _ in range(3):
        one("add")
    two("add")
    assert (one("count"), two("count"), two("count", "user 6")) == (4, 4, 0)
    one("remove")
    assert two("count") == 3
    one.kill()
    successor = Counting(memory)
    assert (successor("count"), two("count")) == (1, 1)
    key = key_of_equal_hashes(memory)
    two("add", key)
    assert successor("count", key) == 1
    two.kill()
    successor.kill()


def key_of_equal_hashes(memory: CounterMemory) -> str:
    """Return a key whose two hashes are the same: one of 65,536."""
    seed = os.pread(memory.descriptor, SEED_BYTES, 0)
    for number in itertools.count():
        digest = blake2b(f"user {number}".encode(), digest_size=4, key=seed).digest()
        if digest[:2] == digest[2:]:
            return f"user {number}"
    raise AssertionError("unreachable")


def test_what_is_removed_is_not_kept() -> None:
    memory = CounterMemory(1)
    made: list[Callable[[], LocalCounters | SharedCounters]] = [LocalCounters, lambda: SharedCounters(memory)]
    for make in made:
        counters = make()
        counters.add(KEY)
        counters.remove(KEY)
        assert counters.count(KEY) == 0


def test_a_counter_sees_the_other_processes() -> None:
    memory = CounterMemory(2)
    other = Counting(memory)
    counter = SharedCounters(memory).counter(KEY)
    other("add")
    counter.add(2)
    assert (counter.count(), counter.own, other("count")) == (3, 2, 3)
    counter.remove()
    other("remove")
    assert (counter.count(), other("count")) == (1, 1)
    other.kill()
