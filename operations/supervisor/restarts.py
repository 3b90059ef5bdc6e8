"""How often something that ends by itself is started again, and how long that waits. Pure."""

from collections import deque
from typing import Final

MOST: Final = 5  # restarts within the window
WINDOW_SECONDS: Final = 60.0
FIRST_DELAY: Final = 0.5  # seconds; each restart within the window waits twice as long as the one before


class Restarts:
    """The restarts of one process or server."""

    def __init__(self, first_delay: float = FIRST_DELAY) -> None:
        self._first_delay = first_delay
        self._moments: deque[float] = deque(maxlen=MOST)

    def delay(self, now: float) -> float | None:
        """Return the seconds to wait before the next restart, which is counted at `now`; None: not again."""
        while self._moments and now - self._moments[0] > WINDOW_SECONDS:
            self._moments.popleft()
        if len(self._moments) == MOST:
            return None
        self._moments.append(now)
        return self._first_delay * (1 << (len(self._moments) - 1))
