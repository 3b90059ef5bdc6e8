"""Typed access to tables of a TOML file, which refuses unknown keys."""

from typing import Final, TypeVar

T = TypeVar("T")

_KINDS: Final[dict[type, str]] = {str: "text in quotes", int: "a whole number", bool: "true or false", list: "a list"}


def take(table: dict[str, object], key: str, kind: type[T], default: T | None = None) -> T:
    """Remove and return the value of a key, which must be of exactly this type (True is no number here).

    Raises ValueError for another type, and for a missing key without a default.
    """
    value = table.pop(key, default)
    if value is None:
        raise ValueError(f"{key} is missing")
    if type(value) is not kind:
        raise ValueError(f"{key} must be {_KINDS[kind]}, not {value!r}")
    return value


def refuse_rest(table: dict[str, object]) -> None:
    """Raise ValueError if a key is left."""
    if table:
        raise ValueError(f"unknown key {', '.join(sorted(table))}")
