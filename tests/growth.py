"""How much longer work takes for four times the input, in CPU time of this thread."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

TIMES: Final = 4
MOST: Final = 6.0  # times the time of linear work, with caches that larger inputs leave; that of quadratic is 16
ROUNDS: Final = 30


@dataclass(frozen=True, slots=True)
class GrowthCase:
    """Work on the worst input of a size, of which four times as much fits into caches; `make` is not timed."""

    make: Callable[[int], Any]
    size: int
    run: Callable[[Any], object]


def growth_of(case: GrowthCase) -> float:
    """Return the least ratio of times that were taken one after the other, up to the first that is at most MOST."""
    case.run(case.make(case.size))  # what is compiled or cached at first
    ratio = float("inf")
    for _ in range(ROUNDS):
        small = min(_seconds(case, case.size) for _ in range(3))
        ratio = min(ratio, _seconds(case, TIMES * case.size) / small)
        if ratio <= MOST:
            break
    return ratio


def _seconds(case: GrowthCase, size: int) -> float:
    value = case.make(size)
    gc.disable()  # it looks at all that the process has
    try:
        began = time.thread_time()
        case.run(value)
        return time.thread_time() - began
    finally:
        gc.enable()
