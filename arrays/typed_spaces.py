"""Spaces as people type them into a form, and back. Pure.

    1-100:2%4                  indices
    lr = 0.1, 0.01             a grid, with a line for each parameter: values, or 0..9 and 0..1:0.25
    lr = loguniform 0.001, 1   a random choice, the same: uniform, loguniform or int with bounds, choice with values
    lr,seed                    a list: a table with a line of names, as CSV or as spreadsheets copy it

Behind each kind but indices may also stand what the API takes, as JSON.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final

from arrays.spaces import SpaceError, read_value

NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?"
STEPS: Final = re.compile(rf"({NUMBER})\.\.({NUMBER})(?::({NUMBER}))?")
SEPARATORS: Final = re.compile(r"[,\s]+")


def space_of(kind: str, text: str, count: int | None = None, seed: int | None = None) -> Any:
    """Return the space as the API takes it. Raises SpaceError; what it means is for `spaces.read`."""
    if kind == "indices":
        return {kind: text}
    given = _json(text) if text.lstrip()[:1] in ("{", "[") else READERS[kind](text)
    if kind == "random":
        drawn = {"count": count, "seed": seed, "parameters": given}
        given = {name: value for name, value in drawn.items() if value is not None}
    return {kind: given}


def typed(space: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a space and the text that stands for it: what no line can say as JSON."""
    [(kind, given)] = space.items()
    if kind == "indices" or given is None:
        return kind, given or ""
    said = given["parameters"] if kind == "random" else given
    text = WRITERS[kind](said)
    try:
        is_same = READERS[kind](text) == said
    except SpaceError:
        is_same = False
    return kind, text if is_same else json.dumps(said, ensure_ascii=False)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SpaceError("What begins with a brace or a bracket is read as JSON, and this is none.") from None


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and what stands behind them."""
    known = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, _equals, values = map(str.strip, line.partition("="))
        if not (name and values):
            raise SpaceError(f"Line {number}: write name = values, such as lr = 0.1, 0.01.")
        if name in known:
            raise SpaceError(f"Line {number}: {name} is there twice.")
        known.add(name)
        yield name, values


def _grid(text: str) -> Any:
    return {name: _axis(name, values) for name, values in _assigned(text)}


def _axis(name: str, text: str) -> Any:
    if steps := STEPS.fullmatch(text):
        numbers = zip(("from", "to", "step"), steps.groups(), strict=True)
        return {key: read_value(number) for key, number in numbers if number}
    values = _row(text)
    if any(STEPS.fullmatch(each) for each in values):
        raise SpaceError(f"{name}: numbers such as 0..9 stand alone behind their name.")
    return [read_value(each) for each in values]


def _random(text: str) -> Any:
    return {name: _distribution(values) for name, values in _assigned(text)}


def _distribution(text: str) -> Any:
    kind, *rest = text.split(None, 1)
    values = _row(rest[0]) if kind == "choice" and rest else SEPARATORS.split("".join(rest))
    return {kind: [read_value(each) for each in values if each]}


def _list(text: str) -> Any:
    lines = text.strip().splitlines()
    delimiter = "\t" if lines and "\t" in lines[0] else ","
    names, *rows = [row for row in _table(lines, delimiter) if row] or [[]]
    if len(set(names)) < len(names):
        raise SpaceError("In the first line stand the names of the parameters, each of them once.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise SpaceError(f"Row {number} has {len(row)} values, and there are {len(names)} names.")
    return [dict(zip(names, map(read_value, row), strict=True)) for row in rows]


def _row(text: str) -> list[str]:
    return next(iter(_table([text], ",")), [])


def _table(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    try:
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        return [[each.strip() for each in row] for row in rows]
    except csv.Error:
        raise SpaceError('Close each quotation mark: a value such as "a, b" has one on each side.') from None


def _written_grid(axes: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name} = {_steps(values) if isinstance(values, Mapping) else _written_row(values)}"
        for name, values in axes.items()
    )


def _steps(values: Mapping[str, Any]) -> str:
    return f"{values['from']}..{values['to']}" + (f":{values['step']}" if "step" in values else "")


def _written_random(draws: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(
        f"{name} = {kind} {_written_row(values)}" for name, each in draws.items() for kind, values in each.items()
    )


def _written_list(sets: Sequence[Mapping[str, Any]]) -> str:
    names = list(sets[0])
    return "\n".join([_written_row(names), *(_written_row([each.get(name, "") for name in names]) for each in sets)])


def _written_row(values: Sequence[Any]) -> str:
    text = StringIO()
    plain = [str(each).lower() if isinstance(each, bool) else each for each in values]
    csv.writer(text, lineterminator="").writerow(plain)
    return text.getvalue().replace(",", ", ") if '"' not in text.getvalue() else text.getvalue()


READERS: Final[Mapping[str, Callable[[str], Any]]] = {"grid": _grid, "random": _random, "list": _list}
WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "grid": _written_grid,
    "random": _written_random,
    "list": _written_list,
}
