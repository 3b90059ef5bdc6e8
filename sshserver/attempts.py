"""Counts failed log-ins by address, and says who has to wait. Pure: the clock is the caller's."""

from collections import OrderedDict, deque
from typing import Final

MOST_FAILURES: Final = 30  # connections; people behind one address share it
WINDOW_SECONDS: Final = 300.0
MOST_ADDRESSES: Final = 10_000  # remembered; the longest untouched is forgotten first


class Attempts:
    """Addresses with their failures of the last WINDOW_SECONDS; times are seconds of any steady clock."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, address: str, now: float) -> int:
        """Note a failure, and return how many there were lately."""
        failures = self._failures.setdefault(address, deque(maxlen=MOST_FAILURES))
        failures.append(now)
        self._failures.move_to_end(address)
        if len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        return self._recent(address, now)

    def succeeded(self, address: str) -> None:
        """Forget the failures."""
        self._failures.pop(address, None)

    def is_blocked(self, address: str, now: float) -> bool:
        """Return whether there were too many failures lately."""
        return self._recent(address, now) >= MOST_FAILURES

    def _recent(self, address: str, now: float) -> int:
        failures = self._failures.get(address, deque())
        while failures and failures[0] <= now - WINDOW_SECONDS:
            failures.popleft()
        if not failures:
            self._failures.pop(address, None)
        return len(failures)
