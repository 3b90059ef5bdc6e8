"""Counts failed log-ins by client address, to block addresses with too many. Pure: the caller passes the time."""

from collections import OrderedDict, deque
from typing import Final

MAX_FAILURES: Final = 30  # connections; people behind one address share it
WINDOW_SECONDS: Final = 300.0
MAX_ADDRESSES: Final = 10_000  # remembered; the least recently failed is evicted first


class LoginFailures:
    """The failures of each address within the last WINDOW_SECONDS; `now` is in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def record(self, address: str, now: float) -> int:
        """Record a failure, and return the number of failures within the window."""
        failures = self._failures.setdefault(address, deque(maxlen=MAX_FAILURES))
        failures.append(now)
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return self._recent(address, now)

    def clear(self, address: str) -> None:
        """Delete the failures of an address that has logged in."""
        self._failures.pop(address, None)

    def is_blocked(self, address: str, now: float) -> bool:
        """Return whether the address has reached MAX_FAILURES within the window."""
        return self._recent(address, now) >= MAX_FAILURES

    def _recent(self, address: str, now: float) -> int:
        failures = self._failures.get(address, deque())
        while failures and failures[0] <= now - WINDOW_SECONDS:
            failures.popleft()
        if not failures:
            self._failures.pop(address, None)
        return len(failures)
