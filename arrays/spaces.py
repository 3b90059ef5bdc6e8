"""What an array runs: indices as Slurm writes them, or sets of parameters. Pure; bounded before anything is made.

A space is a text such as "0-15:4%2", or an object with one of `indices`, `grid`, `random` and `list`.
"""

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any, Final

from sessions.launching.validation import environment_error

MAX_INDEX: Final = 999_999
MAX_PARAMETERS: Final = 20
MAX_TEXT: Final = 1024
MAX_SIZE: Final = 16 * 2**20  # characters of names and values of all tasks
MAX_INTEGER: Final = 2**63 - 1
MAX_SHOWN: Final = 16 * 1024  # characters of a space that is stored beside its tasks, and read with each list of arrays
MAX_PARTS: Final = 10_000  # of a text of indices, or values to choose from
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SET_BY_US: Final = ("GP_", "SLURM_")
UNFIT: Final = re.compile("[\0\ud800-\udfff]")
PART: Final = re.compile(r"(?P<first>[0-9]{1,6})(-(?P<last>[0-9]{1,6})(:(?P<step>[1-9][0-9]{0,5}))?)?")
TEXT: Final = re.compile(r"(?P<parts>[0-9,:-]*)(%(?P<most>[0-9]{1,6}))?")
NO_INDICES: Final = "Write indices such as 1-100, 0-15:4 or 1,3,7, with %4 behind for four at a time."
BOUNDS: Final = 2  # of a distribution
KINDS: Final = ("indices", "grid", "random", "list")

Value = str | int | float | bool
Parameters = dict[str, Value]


class SpaceError(ValueError):
    """The space is not valid; the message says why, for the user."""


@dataclass(frozen=True, slots=True)
class TaskSpace:
    """The tasks of an array by index, and how many of them may run at once, where the text of indices says so."""

    tasks: Mapping[int, Parameters]
    max_parallel: int | None = None
    stored: Any = None  # as it was asked for, with the seed that was drawn; a long one by its kind alone


def read(asked: Any, most: int) -> TaskSpace:
    """Return the tasks of a space, at most so many. Raises SpaceError."""
    asked = plain(asked)
    if isinstance(asked, str | int) and not isinstance(asked, bool):
        asked = {"indices": str(asked)}
    if not isinstance(asked, Mapping) or len(asked) != 1 or next(iter(asked)) not in KINDS:
        raise SpaceError(f'Write indices such as "1-100%4", or an object with one of {", ".join(KINDS)}.')
    [(kind, given)] = asked.items()
    if kind == "indices":
        indices, parallel = read_indices(str(given), most)
        return TaskSpace({index: {} for index in indices}, parallel, _described(kind, str(given)))
    sets, stored = {"grid": _grid, "random": _random, "list": _listed}[kind](given, most)
    if sum(len(name) + len(str(value)) for each in sets for name, value in each.items()) > MAX_SIZE:
        raise SpaceError("The parameters of all tasks may take 16 MiB: put what is long into a file.")
    return TaskSpace(dict(enumerate(sets)), None, _described(kind, stored))


def plain(asked: Any) -> Any:
    """Return what API or spec file have read, which read numbers as decimals, as plain JSON. Raises SpaceError."""
    try:
        return json.loads(json.dumps(asked, default=float))
    except (TypeError, ValueError, RecursionError):
        raise SpaceError("Write texts, numbers, lists and objects.") from None


def read_indices(text: str, most: int) -> tuple[list[int], int | None]:
    """Return the indices of a text such as "1-9,20-30:2%4" in their order, and what follows %. Raises SpaceError."""
    found = TEXT.fullmatch(text.strip().removeprefix("[").removesuffix("]")) if len(text) <= 10 * MAX_PARTS else None
    parts = found["parts"].split(",") if found else []
    indices, named = set[int](), 0
    for part in parts[:MAX_PARTS]:
        one = PART.fullmatch(part)
        if one is None:
            raise SpaceError(NO_INDICES)
        first = int(one["first"])
        span = range(first, int(one["last"] or first) + 1, int(one["step"] or 1))
        if not span:
            raise SpaceError(f"{part} has no index: write the lower one first.")
        named += len(span)
        _bound(len(span), most)
        if named > MAX_INDEX:
            raise SpaceError("Name each index once.")
        indices.update(span)
        _bound(len(indices), most)
    if found is None or not indices or len(parts) > MAX_PARTS:
        raise SpaceError(NO_INDICES)
    parallel = int(found["most"]) if found["most"] else None
    if parallel == 0:
        raise SpaceError("After % stands how many tasks may run at once: one at least.")
    return sorted(indices), parallel


def read_value(text: str) -> Value:
    """Return the number or truth that a text stands for, else the text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, int | float) and abs(found) <= MAX_INTEGER else text


def _described(kind: str, asked: Any) -> dict[str, Any]:
    return {kind: asked if len(json.dumps(asked)) <= MAX_SHOWN else None}


def _grid(given: Any, most: int) -> tuple[list[Parameters], Any]:
    axes = {name: _axis(name, values, most) for name, values in _named(given).items()}
    _bound(math.prod(map(len, axes.values())), most)
    return [dict(zip(axes, each, strict=True)) for each in product(*axes.values())], given


def _axis(name: str, values: Any, most: int) -> Sequence[Value]:
    """Return the values of one parameter of a grid: a list, or numbers from one to another."""
    if isinstance(values, Mapping):
        if not {"from", "to"} <= values.keys() <= {"from", "to", "step"}:
            raise SpaceError(f"{name}: write a list, or an object with from, to and step.")
        numbers = [_number(name, values.get(key, 1)) for key in ("from", "to", "step")]
        first, last, step = (Decimal(str(number)) for number in numbers)  # in floats, three steps of 0.1 are not 0.3
        steps = (last - first) / step if step else -1
        if steps < 0:
            raise SpaceError(f"{name}: no number lies between from and to.")
        count = math.floor(float(min(steps, most)) + 1e-9) + 1
        _bound(count, most)
        kind = int if all(isinstance(number, int) for number in numbers) else float
        return [kind(first + position * step) for position in range(count)]
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise SpaceError(f"{name}: write a list, or an object with from, to and step.")
    _bound(len(values), most)
    return [_value(name, value) for value in values]


def _random(given: Any, most: int) -> tuple[list[Parameters], Any]:
    if not isinstance(given, Mapping) or not {"count", "parameters"} <= given.keys() <= {"count", "parameters", "seed"}:
        raise SpaceError("Write an object with count, parameters and, if it is to be repeated, seed.")
    count, seed = given["count"], given.get("seed", random.SystemRandom().randrange(2**32))
    if not _is_integer(count) or count < 1:
        raise SpaceError("count is a whole number, one at least.")
    if not _is_integer(seed):
        raise SpaceError("seed is a whole number.")
    _bound(count, most)
    draws = {name: _draw(name, values) for name, values in _named(given["parameters"]).items()}
    source = random.Random(seed)  # noqa: S311  # to be repeatable, not secret
    sets = [{name: draw(source) for name, draw in draws.items()} for _ in range(count)]
    return sets, {**given, "seed": seed}


def _draw(name: str, distribution: Any) -> Callable[[random.Random], Value]:
    """Return what draws a value: {"uniform": [a, b]}, {"loguniform": [a, b]}, {"int": [a, b]} or {"choice": [...]}."""
    if not isinstance(distribution, Mapping) or len(distribution) != 1:
        raise SpaceError(f"{name}: write one of uniform, loguniform, int and choice.")
    [(kind, values)] = distribution.items()
    if not isinstance(values, Sequence) or isinstance(values, str) or not 1 <= len(values) <= MAX_PARTS:
        raise SpaceError(f"{name}: behind {kind} stands a list.")
    if kind == "choice":
        choices = [_value(name, value) for value in values]
        return lambda source: source.choice(choices)
    if kind not in ("uniform", "loguniform", "int") or len(values) != BOUNDS:
        raise SpaceError(f"{name}: write one of uniform, loguniform, int and choice, such as uniform: [0, 1].")
    return _draw_between(name, kind, *(_number(name, value) for value in values))


def _draw_between(name: str, kind: str, low: float, high: float) -> Callable[[random.Random], Value]:
    if low > high:
        raise SpaceError(f"{name}: write the lower bound first.")
    if kind == "int":
        if not (_is_integer(low) and _is_integer(high)):
            raise SpaceError(f"{name}: the bounds of int are whole numbers.")
        return lambda source: source.randint(int(low), int(high))
    if kind == "uniform":
        return lambda source: source.uniform(low, high)
    if low <= 0:
        raise SpaceError(f"{name}: the bounds of loguniform are above zero.")
    return lambda source: math.exp(source.uniform(math.log(low), math.log(high)))


def _listed(given: Any, most: int) -> tuple[list[Parameters], Any]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise SpaceError("Write a list of objects, one for each task.")
    _bound(len(given), most)
    sets = [{name: _value(name, value) for name, value in _named(each).items()} for each in given]
    return sets, None  # its tasks have them


def _named(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not given:
        raise SpaceError("Write an object of parameters.")
    if len(given) > MAX_PARAMETERS:
        raise SpaceError(f"A task has at most {MAX_PARAMETERS} parameters.")
    for name in given:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SpaceError(f"{str(name)[:64]!r} is no name of a parameter: use up to 64 letters, digits and _.")
        if name.startswith(SET_BY_US):
            raise SpaceError(f"{name}: names that begin so are set by the platform.")
        if error := environment_error({name: ""}):
            raise SpaceError(error)
    return given


def _value(name: str, value: Any) -> Value:
    if isinstance(value, str) and len(value) <= MAX_TEXT and not UNFIT.search(value):
        return value
    return value if isinstance(value, bool) else _number(name, value)


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_INTEGER:
        raise SpaceError(f"{name}: a value is a number, true, false or a text of at most {MAX_TEXT} characters.")
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER


def _bound(count: int, most: int) -> None:
    if count > most:
        raise SpaceError(f"An array has at most {most} tasks; this makes {count if count < 10**18 else 'far more'}.")
