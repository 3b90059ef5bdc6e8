"""The parameters and metrics of an array's tasks as columns, and the headings that sort by them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Func, TextField
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from arrays.models import Array, ArrayTask, text_of

SAMPLE: Final = 500  # tasks whose names a page looks at: it is drawn every few seconds
MOST: Final = 200  # columns of a file: parameters, and metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading of the table: the order that it asks for, "" for none, and the present one."""

    label: str | Promise
    order: str = ""
    aria_sort: str = ""
    is_number: bool = False


def names_in(array: Array, table: str, sample: int | None = SAMPLE) -> list[str]:
    """Return the names in the `parameters` or `metrics` of the array's first tasks that have any; one query."""
    tasks = array.tasks.exclude(**{table: {}}).order_by("index").values("pk")[:sample]
    name = Func(table, function="jsonb_object_keys", output_field=TextField())
    names = ArrayTask.objects.filter(pk__in=tasks).order_by().annotate(name=name).values_list("name", flat=True)
    return sorted(names.distinct()[:MOST], key=lambda each: (each.startswith("params."), each))  # MLflow's last


def headings(parameters: list[str], metrics: list[str], order: str) -> list[Heading]:
    """Return the headings of the table, in its order."""
    columns: list[tuple[str | Promise, str]] = [
        (_("Task"), "index"),
        *((name, f"parameters.{name}") for name in parameters),
        (_("State"), "state"),
        *((name, f"metrics.{name}") for name in metrics),
        (_("Exit code"), ""),
        (_("Duration"), ""),
        (_("Attempts"), "attempts"),
    ]
    return [_heading(label, path, order) for label, path in columns]


def figure(value: object) -> str:
    """Return a metric, or a parameter, as text; of a number six digits, but whole ones as they are."""
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e15):
        return f"{value:.6g}"
    return str(int(value)) if isinstance(value, float) else "" if value is None else text_of(value)


def cells(values: Mapping[str, Any], names: list[str]) -> list[str]:
    """Return the texts of these columns of a task."""
    return [figure(values.get(name)) for name in names]


def is_number(value: object) -> bool:
    """Return whether it is one; true and false are words."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _heading(label: str | Promise, path: str, order: str) -> Heading:
    present = {path: "ascending", f"-{path}": "descending"}.get(order, "") if path else ""
    return Heading(
        label=label,
        order=f"-{path}" if present == "ascending" else path,
        aria_sort=present,
        is_number=path.startswith("metrics."),
    )
