"""What requests cost in CPU time, by method and shape of the path, as moving averages of those before."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

WEIGHT: Final = 0.1  # of the newest request in the averages
MAX_SHAPES: Final = 512
NAME: Final = re.compile(r"[a-z][a-z-]{0,11}|v1")  # a path's segment that is no id
SEGMENTS: Final = 8


class RequestCosts:
    """Estimates the CPU seconds of a request: those of its thread, and what the process spends on it besides.

    The latter by the service demand law of operational analysis (Denning and Buzen, 1978): busy time by completions.
    `slowdown` is how much longer than its CPU seconds work takes while requests wait: the cores have other users, and
    threads wait for the database.
    Periods without a request are not counted; apps' traffic during one is, since it shares the interpreter lock.
    """

    def __init__(
        self, cpu_time: Callable[[], float] = time.process_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`cpu_time` returns the CPU seconds that this process has used so far."""
        self._cpu_time = cpu_time
        self._clock = clock
        self.slowdown = 1.0
        self._thread_seconds: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._seen_once: set[tuple[str, str]] = set()
        self._average_seconds = 0.0  # of all threads
        self._process_seconds = 0.0  # per completed request
        self._started = 0
        self._counted = 0.0  # of the CPU time
        self._counted_at = 0.0

    def estimate_seconds(self, method: str, path: str) -> float:
        """Return the CPU time that a request to this path is expected to take."""
        own = self._thread_seconds.get((method, shape_of(path)), self._average_seconds)
        return own + max(0.0, self._process_seconds - self._average_seconds)

    def begin(self) -> None:
        """Count a request as under way."""
        if not self._started:
            self._counted, self._counted_at = self._cpu_time(), self._clock()
        self._started += 1

    def end(self, method: str, path: str, thread_seconds: float | None, *, is_saturated: bool) -> None:
        """Count a request as completed; `thread_seconds` is the CPU time of its thread, None if that is not known.

        `is_saturated` says whether other requests wait.
        """
        used, passed = self._cpu_time() - self._counted, self._clock() - self._counted_at
        self._counted += used
        self._counted_at += passed
        self._process_seconds += WEIGHT * (used - self._process_seconds)
        if is_saturated and used > 0:
            self.slowdown += WEIGHT * (max(1.0, passed / used) - self.slowdown)
        self._started -= 1
        if thread_seconds is None:
            return
        self._average_seconds += WEIGHT * (thread_seconds - self._average_seconds)
        shape = (method, shape_of(path))
        known = self._thread_seconds.pop(shape, None)
        if known is None or shape in self._seen_once:  # the first also reads templates and imports modules
            self._seen_once ^= {shape}
            known = thread_seconds
        self._thread_seconds[shape] = known + WEIGHT * (thread_seconds - known)
        if len(self._thread_seconds) > MAX_SHAPES:
            self._seen_once.discard(self._thread_seconds.popitem(last=False)[0])


def shape_of(path: str) -> str:
    """Return the path with a star for each id in it, such as `/sessions/*/logs`."""
    segments = path.strip("/").split("/", SEGMENTS)[:SEGMENTS]
    return "/" + "/".join(each if NAME.fullmatch(each) else "*" for each in segments)
