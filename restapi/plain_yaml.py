"""YAML that people write, with the line of each value: the core schema of YAML 1.2 without tags, anchors and aliases.

A text has one meaning (no `1:30` is 90, no `no` is false), no short text stands for an endless one, and nesting is
bounded. JSON is read, too. The events come from libyaml, which takes time in proportion to the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import yaml
from django.utils.translation import gettext as _

MAX_DEPTH: Final = 16
MAX_DIGITS: Final = 40  # of a number; what has more stays a text
CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
INTEGER: Final = re.compile(rf"[-+]?[0-9]{{1,{MAX_DIGITS}}}")
NUMBER: Final = re.compile(
    rf"[-+]?(?=\.?[0-9])[0-9]{{0,{MAX_DIGITS}}}(\.[0-9]{{0,{MAX_DIGITS}}})?([eE][-+]?[0-9]{{1,3}})?"
)

Place = tuple[str | int, ...]  # of a value: the names and indexes that lead to it


class PlainYamlError(Exception):
    """The text is not such YAML."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


@dataclass(slots=True)
class YamlDocument:
    """A document of a text; numbers with a fraction are Decimal."""

    line: int  # of its first value, from 1
    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)

    def line_of(self, place: Place) -> int:
        """Return the line of a value, or of the nearest one that it would be inside of."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, self.line)


def documents(text: str) -> list[YamlDocument]:
    """Return the documents of a text, without empty ones. Raises PlainYamlError."""
    if text.lstrip()[:1] in ("{", "["):  # JSON, in whose texts no tab stands as such
        text = text.replace("\t", " ")
    try:
        return list(_Reader(text).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PlainYamlError(mark.line + 1 if mark else 1, _syntax_problem(text, error, mark)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise PlainYamlError(
            line, _("This character is not allowed: %(code)s.") % {"code": f"U+{error.character:04X}"}
        ) from error


def _syntax_problem(text: str, error: yaml.MarkedYAMLError, mark: Any) -> str:
    lines = text.splitlines()
    if mark and mark.line < len(lines) and lines[mark.line].startswith("\t"):
        return _("A line begins with a tab; YAML is indented by spaces.")
    return _("This is no YAML: %(problem)s.") % {"problem": error.problem}


class _Reader:
    """Builds values of the events of a text."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._document = YamlDocument(1)

    def documents(self) -> Iterator[YamlDocument]:
        """Yield the documents that have a value."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                first = next(self._events)
                self._document = document = YamlDocument(first.start_mark.line + 1)
                document.value = self._value(first, ())
                if document.value is not None:
                    yield document

    def _value(self, event: Any, place: Place) -> Any:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise PlainYamlError(line, _("Anchors and aliases are not allowed."))
        if event.tag is not None:
            raise PlainYamlError(line, _("Tags are not allowed."))
        if len(place) > MAX_DEPTH:
            raise PlainYamlError(line, _("This is nested too deeply."))
        self._document.lines.setdefault(place, line)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(place)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(each, (*place, at)) for at, each in enumerate(self._until(yaml.SequenceEndEvent))]
        return event.value if event.style else scalar(event.value)

    def _mapping(self, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or event.anchor is not None:
                raise PlainYamlError(line, _("The name of a value must be a text."))
            name = str(event.value)
            if name in found:
                raise PlainYamlError(line, _("“%(name)s” is there twice.") % {"name": name[:64]})
            self._document.lines[(*place, name)] = line
            found[name] = self._value(next(self._events), (*place, name))
        return found

    def _until(self, end: type[Any]) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event


def scalar(text: str) -> Any:
    """Return the value of a text without quotes."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    return Decimal(text) if NUMBER.fullmatch(text) else text
