"""The values of a small file of YAML, each with the line at which it begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from restapi.plain_yaml import Place, PlainYamlError, YamlDocument, documents

MAX_BYTES: Final = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Located:
    """A value, and the line at which it begins."""

    value: Mapping[str, "Located"] | Sequence["Located"] | str | int | Decimal | bool | None
    line: int


def document_of(text: str) -> YamlDocument:
    """Return the one document of a text. Raises PlainYamlError."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise PlainYamlError(1, f"The file is larger than {MAX_BYTES // 2**10} KiB.")
    found = documents(text)
    if not found:
        raise PlainYamlError(1, "The file is empty.")
    if len(found) > 1:
        raise PlainYamlError(found[1].line, "The file has a second document.")
    return found[0]


def located(text: str) -> Located:
    """Return the values of the one document of a text. Raises PlainYamlError."""
    document = document_of(text)
    return _located(document, document.value, ())


def _located(document: YamlDocument, value: Any, place: Place) -> Located:
    line = document.line_of(place)
    if isinstance(value, dict):
        return Located({name: _located(document, each, (*place, name)) for name, each in value.items()}, line)
    if isinstance(value, list):
        return Located([_located(document, each, (*place, at)) for at, each in enumerate(value)], line)
    return Located(value, line)
