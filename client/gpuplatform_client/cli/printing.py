"""Lists and objects as tables for people, and as JSON, YAML or names for programs."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from io import StringIO
from typing import Annotated, Any, Final, Generic, TypeVar

import typer
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter
from ruamel.yaml.resolver import VersionedResolver

from gpuplatform_client.cli.amounts import clock_text, size_text
from gpuplatform_client.cli.connection import output, table_of
from gpuplatform_client.models.api_model import ApiModel

Item = TypeVar("Item")
Column = tuple[str, Callable[[Item], str]]

MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*")
YAML_TEXT: Final = "tag:yaml.org,2002:str"
SIZES: Final = frozenset({"memory", "size", "shared_memory", "min_memory", "length", "received"})


class ListFormat(StrEnum):
    """How a list or an object is printed."""

    TABLE = "table"
    WIDE = "wide"  # a table with more columns
    JSON = "json"  # one object a line
    YAML = "yaml"  # one document an object
    NAME = "name"  # what other commands take, one a line


ListOption = Annotated[
    ListFormat,
    typer.Option("--output", "-o", help="wide: more columns; json: one object a line; yaml; name: names or ids"),
]


class ListPrinter(Generic[Item]):
    """Prints the items of a list, at once or as they come: what is printed later has the same columns."""

    def __init__(
        self,
        form: ListFormat,
        columns: Sequence[Column[Item]],
        *,
        wide: Sequence[Column[Item]] = (),
        name_of: Callable[[Item], str],
        below: Callable[[Item], Iterable[Sequence[str]]] = lambda item: (),
    ) -> None:
        """A column is its heading and what it shows of an item. `below` are more rows of a table's row."""
        self._form = form
        self._columns = [*columns, *wide] if form == ListFormat.WIDE else columns
        self._name_of = name_of
        self._below = below
        self._widths: list[int] = []

    def print(self, items: Iterable[Item]) -> None:
        """Print items; the first time with headings."""
        if self._form in (ListFormat.TABLE, ListFormat.WIDE):
            self._print_table(items)
            return
        for item in items:
            print_for_programs(item, self._form, self._name_of(item))

    def _print_table(self, items: Iterable[Item]) -> None:
        table = table_of(*(heading for heading, _ in self._columns))
        table.show_header = table.show_header and not self._widths
        for column, width in zip(table.columns, self._widths, strict=False):
            column.min_width = width
        for item in items:
            table.add_row(*(text_of(item) for _, text_of in self._columns))
            for cells in self._below(item):
                table.add_row(*cells)
        self._widths = [max(len(str(cell)) for cell in (each.header, *each.cells)) for each in table.columns]
        output.print(table, markup=False)


def print_list(
    items: Iterable[Item],
    form: ListFormat,
    columns: Sequence[Column[Item]],
    *,
    wide: Sequence[Column[Item]] = (),
    name_of: Callable[[Item], str],
    below: Callable[[Item], Iterable[Sequence[str]]] = lambda item: (),
) -> None:
    """Print a list; see `ListPrinter`."""
    ListPrinter(form, columns, wide=wide, name_of=name_of, below=below).print(items)


def print_for_programs(item: Any, form: ListFormat, name: str) -> bool:
    """Print an object of the API unless that is to be done for people; return whether it was."""
    if form == ListFormat.JSON and isinstance(item, ApiModel):
        output.out(item.model_dump_json(), highlight=False)
    elif form == ListFormat.JSON:
        output.out(json.dumps(item, separators=(",", ":"), ensure_ascii=False), highlight=False)
    elif form == ListFormat.YAML:
        output.out(_yaml(item.model_dump() if isinstance(item, ApiModel) else item), end="", highlight=False)
    elif form == ListFormat.NAME:
        output.out(name, highlight=False)
    else:
        return False
    return True


class _YamlRepresenter(SafeRepresenter):
    """Quotes texts such as "yes" and "12:30", which programs that read YAML 1.1 take for something else."""

    _older = VersionedResolver(version=(1, 1))

    def represent_str(self, data: str) -> Any:
        """Return the node of a text."""
        is_text = self._older.resolve(ScalarNode, data, (True, False)) == YAML_TEXT
        return self.represent_scalar(YAML_TEXT, data, style=None if is_text else "'")


_YamlRepresenter.add_representer(str, _YamlRepresenter.represent_str)


def _yaml(value: Any) -> str:
    """Return a value of JSON as a document."""
    writer: Any = YAML(typ="safe", pure=True)
    writer.Representer = _YamlRepresenter
    writer.explicit_start, writer.default_flow_style, writer.sort_base_mapping_type_on_output = True, False, False
    text = StringIO()
    writer.dump(value, text)
    return text.getvalue()


def print_object(item: Any, form: ListFormat, name: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print an object of the API, for people what there is to know of it."""
    if not print_for_programs(item, form, name):
        print_facts(facts)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print what there is to know of one object, a line each."""
    shown = list(facts)
    width = max((len(label) for label, _ in shown), default=0)
    for label, text in shown:
        output.print(f"{label:<{width}}  {text}", highlight=False, markup=False)


def fields_of(names: str) -> list[Column[Any]]:
    """Return the columns that show these fields of objects of the API."""
    return [(_heading(name), partial(field_text, name=name)) for name in names.split()]


def field_text(item: Any, name: str) -> str:
    """Return what a field of an object holds; "-" if nothing."""
    value = item.get(name) if isinstance(item, dict) else getattr(item, name)
    return _text(value, name)


def _heading(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_at").removesuffix("_bytes").replace("_", " ").upper()


def _text(value: Any, name: str = "") -> str:
    if value is None or value in ("", [], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and (name in SIZES or name.endswith("_bytes")):
        return size_text(value)
    if isinstance(value, datetime) or (isinstance(value, str) and MOMENT.fullmatch(value)):
        return clock_text(value if isinstance(value, datetime) else datetime.fromisoformat(value))
    if isinstance(value, list | tuple):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={_text(each, key)}" for key, each in value.items())
    return str(value)
