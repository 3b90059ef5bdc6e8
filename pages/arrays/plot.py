"""A parameter of an array's tasks against a metric, as dots. Pure, but for the query of `plot_of`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import F, QuerySet
from django.db.models.fields.json import KeyTransform

from arrays.models import ArrayTask
from pages.arrays.columns import figure, is_number

INDEX: Final = "index"  # the name of the axis of the tasks' indices; parameters and metrics have a dot
MAX_DOTS: Final = 2000
MAX_WORDS: Final = 12  # of an axis whose values are no numbers; more are left out
SIZE: Final = 1000  # of the drawing
MARGIN: Final = 30
SPREAD: Final = 100  # times the least is the most from which on an axis of numbers above zero is logarithmic


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values stand: between two numbers, or each word at a place of its own."""

    marks: tuple[str, ...]
    is_words: bool
    is_logarithmic: bool
    low: float = 0.0
    span: float = 1.0

    def place(self, value: Any) -> float | None:
        """Return where a value stands, from 0 to SIZE; None for one that has no place."""
        if self.is_words:
            if (word := figure(value)) not in self.marks:
                return None
            return round(SIZE * (self.marks.index(word) + 0.5) / len(self.marks), 1)
        if not is_number(value):
            return None
        share = (self._scaled(value) - self.low) / self.span
        return round(MARGIN + (SIZE - 2 * MARGIN) * share, 1)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_logarithmic else float(value)


@dataclass(frozen=True, slots=True)
class Dot:
    """A task of the plot; `y` is from above."""

    index: int
    x: float
    y: float
    x_text: str
    y_text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """The dots from left to right, their axes, and those with the least and the largest value."""

    dots: tuple[Dot, ...]
    x: Axis
    y: Axis
    least: Dot
    largest: Dot


def plot_of(tasks: QuerySet[ArrayTask], x: str, metric: str) -> Plot | None:
    """Return the plot of the first tasks that have the metric; `x` is INDEX or a parameter's name. One query."""
    across = F("index") if x == INDEX else KeyTransform(x.partition(".")[2], "parameters")
    having = tasks.filter(metrics__has_key=metric).order_by("index").annotate(across=across)
    rows = having.annotate(up=KeyTransform(metric, "metrics")).values_list("index", "across", "up")[:MAX_DOTS]
    return drawn([row for row in rows if row[1] is not None])


def drawn(rows: Sequence[tuple[int, Any, Any]]) -> Plot | None:
    """Return the plot of these tasks (index, x, y); None for none."""
    if not rows:
        return None
    across, up = axis_of([row[1] for row in rows]), axis_of([row[2] for row in rows])
    dots = [
        (up_value, Dot(index, x, SIZE - y, figure(value), figure(up_value)))
        for index, value, up_value in rows
        if (x := across.place(value)) is not None and (y := up.place(up_value)) is not None
    ]
    if not dots:
        return None
    least, largest = min(dots, key=lambda each: each[0])[1], max(dots, key=lambda each: each[0])[1]
    return Plot(
        tuple(sorted((dot for _value, dot in dots), key=lambda dot: (dot.x, -dot.y))), across, up, least, largest
    )


def axis_of(values: Sequence[Any]) -> Axis:
    """Return the axis for these values: of numbers if all are, else of their words."""
    if not all(is_number(value) for value in values):
        return Axis(tuple(sorted({figure(value) for value in values})[:MAX_WORDS]), True, False)
    least, most = min(values), max(values)
    is_logarithmic = least > 0 and most / least >= SPREAD
    marks = (figure(least), figure(most)) if least < most else (figure(least),)
    low, high = (math.log(least), math.log(most)) if is_logarithmic else (float(least), float(most))
    if low == high:  # one value, in the middle
        return Axis(marks, False, False, low - 0.5, 1.0)
    return Axis(marks, False, is_logarithmic, low, high - low)
