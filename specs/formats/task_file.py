"""What the task files of SkyPilot and dstack have in common: options with lines, numbers with ranges, steps."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from math import ceil
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _

from resources.amounts.units import GIB, bytes_from
from restapi.plain_yaml import Place, YamlDocument
from specs.formats.translation import Translation

LEAST: Final = re.compile(r"^\s*(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?)\s*(?P<unit>[A-Za-z]*)\s*(?P<more>\+|\.\..*)?\s*$")
SHOWN: Final = 80  # characters of a value in the table


class TaskOption(NamedTuple):
    """An option of a task file."""

    place: Place
    line: int
    value: Any

    @property
    def text(self) -> str:
        """Return it as the table shows it."""
        name = ".".join(map(str, self.place))
        return name if isinstance(self.value, dict | list) else f"{name}: {self.value}"[:SHOWN]


def options_of(document: YamlDocument, *outer: str) -> Iterator[TaskOption]:
    """Yield the options of a mapping inside of the document, or of the document itself."""
    found = document.value
    for name in outer:
        found = found.get(name) if isinstance(found, dict) else None
    for name, value in (found or {}).items() if isinstance(found, dict) else ():
        yield TaskOption((*outer, name), document.line_of((*outer, name)), value)


def least_of(made: Translation, option: TaskOption, value: Any = None) -> tuple[Decimal, str, str]:
    """Return number, unit and a note of "4", "4+", "4..8" or "16GB..": the least is asked for. Raises SpecError."""
    text = str(option.value if value is None else value)
    found = LEAST.match(text)
    if found is None:
        made.refuse(option.line, option.text, _("Write a number such as 4, or at least 4."))
    note = _("The least of the range.") if found["more"] else ""
    return Decimal(found["number"]), found["unit"], note


def put_cpu(made: Translation, option: TaskOption) -> None:
    """Ask for the cores of an option."""
    number, _unit, note = least_of(made, option)
    made.put(option.line, option.text, "cpu", ceil(number), note)


def put_memory(made: Translation, option: TaskOption) -> None:
    """Ask for the memory of an option, which is in GiB without a unit."""
    number, unit, note = least_of(made, option)
    try:
        size = bytes_from(f"{number}{unit}") if unit else int(number * GIB)
    except ValueError:
        made.refuse(option.line, option.text, _("Write memory such as 16G or 512M."))
    made.put_memory(option.line, option.text, size, note)


def put_env(made: Translation, option: TaskOption) -> None:
    """Set the variables of an object, or of a list of NAME=VALUE."""
    pairs: Iterable[tuple[str, Any]] = option.value.items() if isinstance(option.value, dict) else ()
    if isinstance(option.value, list):
        pairs = [
            (name, value if equals else None) for name, equals, value in (str(e).partition("=") for e in option.value)
        ]
    for name, value in pairs:
        if value is None:
            made.leave(
                option.line, f"{option.text}.{name}", _("It has no value; no variables are taken from elsewhere.")
            )
        else:
            made.put(option.line, f"{option.text}.{name}", ("env", str(name)), _as_text(value))


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def put_nodes(made: Translation, option: TaskOption) -> None:
    """Make it a cluster where there are several nodes, all of which run the program."""
    number, _unit, note = least_of(made, option)
    if number > 1:
        made.put(option.line, option.text, ("cluster", "size"), int(number), note)
        made.fields["cluster"]["runs_on_all"] = True
    else:
        made.leave(option.line, option.text, _("A session is on one host anyway."))
