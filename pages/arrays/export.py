"""The tasks of an array as a CSV file: all that match, with every parameter and metric, read and sent in parts."""

import csv
from collections.abc import Iterator
from typing import Any, Final

from django.db.models import QuerySet

from arrays.models import Array, ArrayTask, text_of
from pages.arrays.columns import is_number, names_in
from pages.csv_cells import inert

AT_ONCE: Final = 500  # tasks that are read and written together
_FIRST: Final = ("index", "state")
_LAST: Final = ("exit_code", "reason", "attempts", "session", "started_at", "ended_at")


class _Line:
    """What a CSV writer writes to: it returns the line."""

    def write(self, line: str) -> str:
        return line


def csv_of(array: Array, tasks: QuerySet[ArrayTask]) -> Iterator[str]:
    """Return the lines of the file, times in UTC and ISO 8601; a query for each part, and two."""
    names = {table: names_in(array, table, None) for table in ("parameters", "metrics")}
    columns = [f"{table}.{name}" for table, found in names.items() for name in found]
    writer = csv.writer(_Line())
    yield writer.writerow([*_FIRST, *columns, *_LAST])
    rows = tasks.order_by("index").values_list("index", "state", "parameters", "metrics", *_LAST)
    last = -1
    while part := list(rows.filter(index__gt=last)[:AT_ONCE]):
        for row in part:
            yield writer.writerow([inert(value) for value in _line(row, names)])
        last = part[-1][0]


def _line(row: tuple[Any, ...], names: dict[str, list[str]]) -> list[object]:
    index, state, parameters, metrics, *rest = row
    given = [parameters.get(name, "") for name in names["parameters"]]
    values = [value if is_number(value) else text_of(value) for value in given]
    times = [moment.isoformat(timespec="seconds") if moment else "" for moment in rest[-2:]]
    return [index, state, *values, *(metrics.get(name, "") for name in names["metrics"]), *rest[:-2], *times]
