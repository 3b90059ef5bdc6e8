"""When a session is idle. Pure.

Figures are means of PERIOD each. A figure that is missing is unknown, and what is unknown is never idle: a rule is met
only where every period of its window was measured, and the records after the last whole period contradict nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

PERIOD: Final = timedelta(minutes=5)
RECORD_SECONDS: Final = 10  # hosts record as often as this
MIN_COVERAGE: Final = 0.5  # of a period's records; a figure with fewer is unknown
BUSY_CPU_MILLI: Final = 100  # a tenth of a core and more is work; an open JupyterLab takes a hundredth
BUSY_GPU_PERCENT: Final = 1.0  # of its share
BUSY_NETWORK_BYTES: Final = 100_000  # per second, in and out together: a download works without CPU
MIN_SPAN: Final = timedelta(minutes=10)
MAX_SPAN: Final = timedelta(days=7)


class IdleAction(StrEnum):
    """What is done with an idle session."""

    END = "end"
    PARK = "park"


class IdleCause(StrEnum):
    """Which part of a rule is met."""

    UNUSED = "unused"
    LOW_USE = "low use"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodUse:
    """What a session used in one period; None is unknown. Without a GPU, `gpu_percent` is None and `has_gpu` False."""

    cpu_milli: int | None
    cpu_percent: float | None  # of its cores
    gpu_percent: float | None  # of its share
    network_bytes: int | None  # per second
    has_gpu: bool
    was_used: bool  # by terminal, SSH or an app

    @property
    def is_known(self) -> bool:
        """True where everything was measured that shows work."""
        is_gpu_known = self.gpu_percent is not None or not self.has_gpu
        return self.cpu_milli is not None and self.network_bytes is not None and is_gpu_known

    @property
    def is_idle(self) -> bool:
        """True where it was neither used nor computed, and all of that is known."""
        if self.was_used or self.cpu_milli is None or self.network_bytes is None:
            return False
        if self.has_gpu and (self.gpu_percent is None or self.gpu_percent >= BUSY_GPU_PERCENT):
            return False
        return self.cpu_milli < BUSY_CPU_MILLI and self.network_bytes < BUSY_NETWORK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """Sums over the periods of a window that were measured; percentages are sums, not means."""

    idle: int = 0
    cpu_periods: int = 0
    cpu_percent: float = 0.0
    gpu_periods: int = 0
    gpu_percent: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """The limits of a rule; None leaves one out."""

    idle_timeout: timedelta | None = None
    low_use_window: timedelta | None = None
    low_use_cpu_percent: int | None = None
    low_use_gpu_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Idleness:
    """Which part of a rule is met, and the mean use over its window; None where it does not count."""

    cause: IdleCause
    span: timedelta
    cpu_percent: float | None = None
    gpu_percent: float | None = None


def start_of_period(at: datetime) -> datetime:
    """Return the start of the period in which `at` lies."""
    return datetime.fromtimestamp(at.timestamp() // PERIOD.total_seconds() * PERIOD.total_seconds(), UTC)


def periods_in(span: timedelta) -> int:
    """Return the number of whole periods that cover the span."""
    return math.ceil(span / PERIOD)


def known_mean(mean: float | None, count: int, expected: float) -> float | None:
    """Return the mean of `count` records; None if that is less than MIN_COVERAGE of the expected number."""
    return mean if count and count >= MIN_COVERAGE * expected else None


def is_unused(limits: IdleLimits, use: WindowUse, last_used_at: datetime, now: datetime) -> bool:
    """Return whether the idle timeout is met: nobody used the session, and it computed nothing in any period of it."""
    timeout = limits.idle_timeout
    return timeout is not None and now - last_used_at >= timeout and use.idle >= periods_in(timeout)


def low_use(limits: IdleLimits, use: WindowUse, *, has_gpu: bool) -> Idleness | None:
    """Return how little the session used if every limit that applies to it is undershot, else None.

    That of the GPU does not apply to a session without one; where no limit applies, the rule does not.
    """
    window = limits.low_use_window
    if window is None:
        return None
    means: list[float | None] = []
    for limit, count, total in (
        (limits.low_use_cpu_percent, use.cpu_periods, use.cpu_percent),
        (limits.low_use_gpu_percent if has_gpu else None, use.gpu_periods, use.gpu_percent),
    ):
        if limit is not None and (count < periods_in(window) or total / count >= limit):
            return None
        means.append(None if limit is None else total / count)
    if means == [None, None]:
        return None
    return Idleness(IdleCause.LOW_USE, window, *means)


def contradicts(limits: IdleLimits, cause: IdleCause, latest: PeriodUse) -> bool:
    """Return whether what a session used since the last whole period speaks against ending it; the unknown does."""
    if cause == IdleCause.UNUSED:
        return not latest.is_idle
    pairs = [(limits.low_use_cpu_percent, latest.cpu_percent)]
    if latest.has_gpu:
        pairs.append((limits.low_use_gpu_percent, latest.gpu_percent))
    return any(limit is not None and (value is None or value >= limit) for limit, value in pairs)


def first_idle(limits: IdleLimits, periods: Sequence[PeriodUse | None], warning: timedelta) -> tuple[int, int] | None:
    """Return (number of the period after which the owner is warned, number of that after which the session ends).

    None if it goes on. `periods` follow each other without a gap; None is one that was not measured. This replays a
    rule on what was recorded; a rule that is on looks in between as well.
    """
    warned_at: int | None = None
    grace = periods_in(warning)
    windows = _Windows(limits, periods)
    for number in range(len(periods)):
        if not windows.advance():
            warned_at = None
        elif warned_at is None:
            warned_at = number
        elif number - warned_at >= grace:
            return warned_at, number
    return None


class _Windows:
    """Sums over both windows of a rule while they move along the periods of a session."""

    def __init__(self, limits: IdleLimits, periods: Sequence[PeriodUse | None]) -> None:
        self._limits = limits
        self._periods = periods
        self._next = 0
        self._idle_run = 0
        self._cpu = _MovingSum(periods_in(limits.low_use_window or PERIOD))
        self._gpu = _MovingSum(periods_in(limits.low_use_window or PERIOD))

    def advance(self) -> bool:
        """Move on by a period, and return whether the rule is met after it."""
        period = self._periods[self._next]
        self._next += 1
        self._idle_run = self._idle_run + 1 if period and period.is_idle else 0
        self._cpu.add(period.cpu_percent if period else None)
        self._gpu.add(period.gpu_percent if period else None)
        timeout = self._limits.idle_timeout
        if timeout is not None and self._idle_run >= periods_in(timeout):
            return True
        use = WindowUse(
            cpu_periods=self._cpu.count,
            cpu_percent=self._cpu.total,
            gpu_periods=self._gpu.count,
            gpu_percent=self._gpu.total,
        )
        return low_use(self._limits, use, has_gpu=bool(period and period.has_gpu)) is not None


class _MovingSum:
    """The sum and number of the known among the last `length` values."""

    def __init__(self, length: int) -> None:
        self._values: list[float | None] = []
        self._length = length
        self.total = 0.0
        self.count = 0

    def add(self, value: float | None) -> None:
        """Add a value, and forget the one that leaves the window."""
        self._values.append(value)
        self._change(value, 1)
        if len(self._values) > self._length:
            self._change(self._values[-self._length - 1], -1)

    def _change(self, value: float | None, sign: int) -> None:
        if value is not None:
            self.total += sign * value
            self.count += sign
