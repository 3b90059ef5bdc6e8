"""Counts of connections by key, in one process or over all processes that serve at one address.

The shared counts are a count-min sketch (Cormode and Muthukrishnan, 2005) in memory that the processes map, one row of
counters for each process. A process writes its own row alone, so there are no locks; it counts its own connections
exactly and adds the other rows' estimates, which are never too low.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
from collections import Counter
from hashlib import blake2b
from multiprocessing.reduction import DupFd
from typing import Any, Final, Protocol

SEED_BYTES: Final = 32
COLUMNS: Final = 2**16
COUNTER_BYTES: Final = 4
ROW_BYTES: Final = COLUMNS * COUNTER_BYTES
SPARE_ROWS: Final = 2  # for a process that is being replaced, until it has ended


class KeyCounter(Protocol):
    """The count of one key, which is found faster than by the key."""

    own: int  # counted by this process

    def count(self) -> int:
        """Return the count over all processes."""
        ...

    def add(self, number: int = 1) -> None:
        """Count so many more."""
        ...

    def remove(self, number: int = 1) -> None:
        """Count so many less."""
        ...


class ConnectionCounters(Protocol):
    """Counts by key, such as "user 5"; keys of different kinds must differ."""

    def counter(self, key: str) -> KeyCounter:
        """Return a counter of the key, the only one of this process to count it by."""
        ...

    def count(self, key: str) -> int:
        """Return the count of the key."""
        ...

    def add(self, key: str) -> None:
        """Count one more."""
        ...

    def remove(self, key: str) -> None:
        """Count one less."""
        ...


class LocalCounter:
    """The count of one key in this process."""

    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own = 0

    def count(self) -> int:
        """Return the count."""
        return self.own

    def add(self, number: int = 1) -> None:
        """Count so many more."""
        self.own += number

    def remove(self, number: int = 1) -> None:
        """Count so many less."""
        self.own -= number


class LocalCounters:
    """The counts of this process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def counter(self, key: str) -> LocalCounter:
        """Return a counter of the key."""
        return LocalCounter()

    def count(self, key: str) -> int:
        """Return the count of the key."""
        return self._counts[key]

    def add(self, key: str) -> None:
        """Count one more."""
        self._counts[key] += 1

    def remove(self, key: str) -> None:
        """Count one less, without keeping zeros: there are too many addresses."""
        self._counts[key] -= 1
        if self._counts[key] <= 0:
            del self._counts[key]


class CounterMemory:
    """The memory of `SharedCounters`; can be sent to processes that are spawned, which then map the same memory."""

    def __init__(self, processes: int) -> None:
        """Create memory for so many processes."""
        self.rows = processes + SPARE_ROWS
        self.descriptor = os.memfd_create("counters")
        os.truncate(self.descriptor, SEED_BYTES + self.rows * ROW_BYTES)
        os.pwrite(self.descriptor, secrets.token_bytes(SEED_BYTES), 0)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a process that is being spawned."""
        return {"rows": self.rows, "descriptor": DupFd(self.descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the descriptor over, in the process that was spawned."""
        self.rows = state["rows"]
        self.descriptor = state["descriptor"].detach()


class SharedCounter:
    """The count of one key over all processes, the others' an estimate that is never too low."""

    __slots__ = ("_first", "_others", "_row", "_second", "own")

    def __init__(self, row: "memoryview[int]", others: "list[memoryview[int]]", columns: tuple[int, int]) -> None:
        self.own = 0
        self._row = row
        self._others = others
        self._first, self._second = columns

    def count(self) -> int:
        """Return the count over all processes."""
        first, second, column, other_column = 0, 0, self._first, self._second
        for row in self._others:
            first += row[column]
            second += row[other_column]
        return self.own + (first if first < second else second)

    def add(self, number: int = 1) -> None:
        """Count so many more."""
        self.own += number
        self._row[self._first] += number
        self._row[self._second] += number

    def remove(self, number: int = 1) -> None:
        """Count so many less."""
        self.own -= number
        self._row[self._first] -= number
        self._row[self._second] -= number


class SharedCounters:
    """The counts of all processes that use the memory."""

    def __init__(self, memory: CounterMemory) -> None:
        """Claim a row. Raises RuntimeError if more processes than the memory has rows for run."""
        self._own = LocalCounters()
        self._descriptor = memory.descriptor  # its locks hold the row until the process ends
        self._memory = mmap.mmap(memory.descriptor, 0)
        self._seed = self._memory[:SEED_BYTES]
        table = memoryview(self._memory)[SEED_BYTES:].cast("I")
        rows = [table[row * COLUMNS : (row + 1) * COLUMNS] for row in range(memory.rows)]
        claimed = self._claim(rows)
        self._row = rows[claimed]
        self._others = [row for number, row in enumerate(rows) if number != claimed]

    def counter(self, key: str) -> SharedCounter:
        """Return a counter of the key, the only one of this process to count it by."""
        return SharedCounter(self._row, self._others, self._columns(key))

    def count(self, key: str) -> int:
        """Return the count of the key over all processes; of others', an estimate that is never too low."""
        first, second = self._columns(key)
        others = self._others
        return self._own.count(key) + min(sum(row[first] for row in others), sum(row[second] for row in others))

    def add(self, key: str) -> None:
        """Count one more."""
        self._own.add(key)
        for column in self._columns(key):
            self._row[column] += 1

    def remove(self, key: str) -> None:
        """Count one less."""
        self._own.remove(key)
        for column in self._columns(key):
            self._row[column] -= 1

    def _claim(self, rows: "list[memoryview[int]]") -> int:
        """Return the number of a row that is ours from now on; zero the rows of processes that have ended."""
        claimed: int | None = None
        for number, row in enumerate(rows):
            with contextlib.suppress(BlockingIOError):
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
                row[:] = memoryview(bytes(ROW_BYTES)).cast("I")
                if claimed is None:
                    claimed = number
                else:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, number)
        if claimed is None:
            raise RuntimeError("more processes than rows")
        return claimed

    def _columns(self, key: str) -> tuple[int, int]:
        """Return two different columns, which strangers cannot predict; the same for every process."""
        digest = int.from_bytes(blake2b(key.encode(), digest_size=4, key=self._seed).digest())
        first, second = digest % COLUMNS, digest // COLUMNS
        return first, second if second != first else (second + 1) % COLUMNS
