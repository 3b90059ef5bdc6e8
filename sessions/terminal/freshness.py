"""Whether a terminal's input is recent: input that a network has held back would act long after it was typed. Pure."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_AGE_SECONDS: Final = 6.0  # as long as a browser waits before it gives the connection up (static/js/heartbeat.js)
REMEMBERED: Final = 32  # answers


class Freshness:
    """Knows how old the last answer is that the browser had seen when it sent its input."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: OrderedDict[int, float] = OrderedDict()
        self._alive_at: float | None = None

    def answer(self, number: int) -> None:
        """A question of this number is answered now."""
        now = self._clock()
        self._answers[number] = now
        if len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        if self._alive_at is None:
            self._alive_at = now

    def seen(self, number: int) -> None:
        """The browser had seen the answer of this number when it sent what follows; an unknown one says nothing."""
        if (answered_at := self._answers.get(number)) is not None:
            self._alive_at = max(self._alive_at or 0.0, answered_at)

    @property
    def is_stale(self) -> bool:
        """True where input that comes now may be old; never for a client that asks no questions."""
        return self._alive_at is not None and self._clock() - self._alive_at > MAX_AGE_SECONDS
