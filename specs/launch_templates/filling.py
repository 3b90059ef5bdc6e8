"""Puts the values of parameters in the places of a template that name them, as `${{ lr }}`. Nothing is evaluated."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from restapi.plain_yaml import Place

PLACEHOLDER: Final = re.compile(r"\$\{\{([^{}\n]{1,64})\}\}")
BEGIN: Final = "${{"
VARIABLES, COMMAND = "env", "command"
_OMITTED: Final = object()


def names_in(value: Any) -> list[str]:
    """Return the parameters that a value names, in their order."""
    if isinstance(value, Mapping):
        return [name for inner in value.values() for name in names_in(inner)]
    if isinstance(value, list):
        return [name for inner in value for name in names_in(inner)]
    if not isinstance(value, str):
        return []
    unread = [BEGIN] if BEGIN in PLACEHOLDER.sub("", value) else []  # that no parameter has as its name
    return [name.strip() for name in PLACEHOLDER.findall(value)] + unread


def names_at(fields: Any, place: Iterable[str | int]) -> list[str]:
    """Return the parameters that are named at a place, or in the nearest one that it would be inside of."""
    found = fields
    for part in place:
        inner = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, list) and str(part).isdecimal() and int(part) < len(found):
            inner = found[int(part)]
        if inner is None:
            break
        found = inner
    return [] if found is fields else names_in(found)


def filled(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with these values; what would be None alone is left out, with the entry of a list it is in.

    Inside of a command, texts are quoted for the shell.
    """
    return {name: value for name, value in _mapping(fields, values, ()).items() if value is not _OMITTED}


def _mapping(fields: Mapping[str, Any], values: Mapping[str, Any], place: Place) -> dict[str, Any]:
    return {name: _filled(value, values, (*place, name)) for name, value in fields.items()}


def _filled(value: Any, values: Mapping[str, Any], place: Place) -> Any:
    if isinstance(value, Mapping):
        inner = _mapping(value, values, place)
        if isinstance(place[-1], int) and _OMITTED in inner.values():
            return _OMITTED
        return {name: each for name, each in inner.items() if each is not _OMITTED}
    if isinstance(value, list):
        entries = [_filled(each, values, (*place, at)) for at, each in enumerate(value)]
        return [each for each in entries if each is not _OMITTED]
    return _filled_text(value, values, place) if isinstance(value, str) else value


def _filled_text(text: str, values: Mapping[str, Any], place: Place) -> Any:
    if whole := PLACEHOLDER.fullmatch(text):
        found = values.get(whole[1].strip())
        if found is None:
            return _OMITTED
        return _as_text(found) if VARIABLES in place or COMMAND in place else found

    def replaced(match: re.Match[str]) -> str:
        found = values.get(match[1].strip())
        if isinstance(found, str) and COMMAND in place:
            return shlex.quote(found)
        return "" if found is None else _as_text(found)

    return PLACEHOLDER.sub(replaced, text)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
