"""A session's use over any length of time in a bounded number of points. Pure.

A point stands for a step of time, and weighs in means by its number of records. When there would be more than
MAX_POINTS, two neighbours become one and the step doubles, so that a minute and a month take the same room.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_POINTS: Final = 360  # the first hour at the step below
FIRST_STEP_SECONDS: Final = 10  # as often as hosts record
FIELDS: Final = ("cpu_milli", "memory", "received", "sent", "gpu_memory", "gpu_utilisation")
PEAKS: Final = frozenset({"memory", "gpu_memory"})  # of these a point holds the most, of the others the mean

Values = Sequence[int | None]  # in the order of FIELDS
Point = list[int | None]  # number of its step, number of records, values


@dataclass(frozen=True, slots=True)
class UsagePoints:
    """Points in order, each of `step_seconds`."""

    points: list[Point]
    step_seconds: int = FIRST_STEP_SECONDS

    def fold(self, records: Iterable[tuple[float, Values]]) -> "UsagePoints":
        """Return the points with these records added, each given by its seconds since the beginning."""
        by_step = {int(point[0] or 0): point for point in self.points}
        step_seconds = self.step_seconds
        for seconds, values in records:
            while seconds >= MAX_POINTS * step_seconds:
                by_step, step_seconds = _halved(by_step), step_seconds * 2
            number = max(0, int(seconds // step_seconds))
            _add(by_step, [number, 1, *values])
        return UsagePoints([by_step[number] for number in sorted(by_step)], step_seconds)


def _halved(by_step: dict[int, Point]) -> dict[int, Point]:
    halved: dict[int, Point] = {}
    for number, point in by_step.items():
        _add(halved, [number // 2, *point[1:]])
    return halved


def _add(by_step: dict[int, Point], point: Point) -> None:
    number = int(point[0] or 0)
    by_step[number] = _merged(by_step[number], point) if number in by_step else point


def _merged(one: Point, other: Point) -> Point:
    counts = (int(one[1] or 0), int(other[1] or 0))
    pairs = zip(FIELDS, one[2:], other[2:], strict=True)
    return [one[0], sum(counts), *(_value(name in PEAKS, pair, counts) for name, *pair in pairs)]


def _value(is_peak: bool, pair: Sequence[int | None], counts: tuple[int, int]) -> int | None:
    known = [(value, count) for value, count in zip(pair, counts, strict=True) if value is not None]
    if is_peak or not known:
        return max((value for value, _ in known), default=None)
    return round(sum(value * count for value, count in known) / sum(count for _, count in known))
