"""Lists as tables for people, and as JSON or names for programs."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from gpuplatform_client.cli.connection import output, table_of
from gpuplatform_client.models.platform import ApiModel

Item = TypeVar("Item", bound=ApiModel)


class ListFormat(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"  # a table with more columns
    JSON = "json"  # one object a line
    NAME = "name"  # what other commands take, one a line


ListOption = Annotated[ListFormat, typer.Option("--output", "-o", help="json: one object a line; name: names or ids")]


def print_list(
    items: Iterable[Item],
    form: ListFormat,
    columns: Sequence[tuple[str, Callable[[Item], str]]],
    *,
    wide: Sequence[tuple[str, Callable[[Item], str]]] = (),
    name_of: Callable[[Item], str],
    below: Callable[[Item], Iterable[Sequence[str]]] = lambda item: (),
) -> None:
    """Print a list; a column is its heading and what it shows of an item. `below` are more rows of a table's row."""
    if form in (ListFormat.JSON, ListFormat.NAME):
        for item in items:
            output.out(item.model_dump_json() if form == ListFormat.JSON else name_of(item), highlight=False)
        return
    shown = [*columns, *wide] if form == ListFormat.WIDE else columns
    table = table_of(*(heading for heading, _ in shown))
    for item in items:
        table.add_row(*(text_of(item) for _, text_of in shown))
        for cells in below(item):
            table.add_row(*cells)
    output.print(table, markup=False)
