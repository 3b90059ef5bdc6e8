"""Requests a minute by token, over all processes that serve together; each may be a second behind the others."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.counters import ConnectionCounters, KeyCounter
from proxy.routes import ServiceToken

WINDOW_SECONDS: Final = 60


class TokenRates:
    """Counts the requests of the last minute by token: each counts for a minute, and then makes room for another.

    A minute's requests may come at once, as with a token bucket that holds as many; those of a second are kept as one
    number, so that a high rate costs no memory.
    """

    def __init__(self, counters: ConnectionCounters, now: Callable[[], float] = time.monotonic) -> None:
        self._counters = counters
        self._now = now
        self._spent: dict[int, _Spent] = {}  # by the token's primary key

    def admit(self, token: ServiceToken) -> int:
        """Count a request and return 0, or return in how many seconds there is room for one."""
        if not token.rate:
            return 0
        now = int(self._now())
        spent = self._spent.get(token.pk)
        if spent is None:
            spent = self._spent[token.pk] = _Spent(self._counters.counter(f"rate {token.pk}"))
        spent.forget(now - WINDOW_SECONDS)
        if spent.counter.count() < token.rate:
            spent.add(now)
            return 0
        return max(1, spent.seconds[0][0] + WINDOW_SECONDS - now) if spent.seconds else 1

    def forget(self) -> None:
        """Forget what is older than the window; to be called once a second, or other processes would count it on."""
        before = int(self._now()) - WINDOW_SECONDS
        for spent in self._spent.values():
            spent.forget(before)
        self._spent = {token: spent for token, spent in self._spent.items() if spent.seconds}


class _Spent:
    """The requests of one token."""

    def __init__(self, counter: KeyCounter) -> None:
        self.counter = counter
        self.seconds: deque[list[int]] = deque()  # second, requests

    def add(self, second: int) -> None:
        self.counter.add()
        if self.seconds and self.seconds[-1][0] == second:
            self.seconds[-1][1] += 1
        else:
            self.seconds.append([second, 1])

    def forget(self, before: int) -> None:
        while self.seconds and self.seconds[0][0] <= before:
            self.counter.remove(self.seconds.popleft()[1])
