"""What all objects of the API have: fields with types, read from and written as JSON. Without compiled parts."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, dataclass_transform, get_args, get_origin, get_type_hints


@dataclass_transform(frozen_default=True, kw_only_default=True)
class ApiModel:
    """An object of the API. Fields that a class does not name are ignored, as of a newer platform."""

    def __init_subclass__(cls) -> None:
        """Make each model a frozen dataclass, whose defaults are its own."""
        super().__init_subclass__()
        for name in inspect.get_annotations(cls):
            if isinstance(default := vars(cls).get(name), list | dict):
                setattr(cls, name, field(default_factory=default.copy))
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Return the object that JSON stands for. Raises TypeError and ValueError where it stands for none."""
        if not isinstance(value, Mapping):
            raise TypeError(f"{cls.__name__} is no object.")
        kinds = _kinds(cls)  # type: ignore[arg-type]  # a class is hashable
        return cls(**{name: _read(kind, value[name]) for name, kind in kinds.items() if name in value})

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Return the object that a text in JSON stands for."""
        return cls.model_validate(json.loads(text))

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return what JSON takes: texts for times and decimals."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {
            name: _shown(value, exclude_none) for name, value in shown.items() if not (exclude_none and value is None)
        }

    def model_dump_json(self) -> str:
        """Return the object in JSON, on one line."""
        return json.dumps(self.model_dump(), ensure_ascii=False, separators=(",", ":"))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return the object with other values of these fields."""
        return replace(self, **update)  # type: ignore[type-var]


@cache
def _kinds(model: type) -> dict[str, Any]:
    return get_type_hints(model)


def _read(kind: Any, value: Any) -> Any:
    """Return a value of JSON as one of this kind. Raises TypeError and ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _read_union(arguments, value)
    if origin is Literal and value in arguments:
        return value
    if origin in (tuple, list) and isinstance(value, list):
        return origin(_read(arguments[0], each) for each in value)
    if origin is dict and isinstance(value, dict):
        return {name: _read(arguments[1], each) for name, each in value.items()}
    if origin is None and issubclass(kind, ApiModel):
        return kind.model_validate(value)
    return _read_plain(kind, value)


def _read_union(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return _read(kind, value)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{value!r} is of no expected type.")


def _read_plain(kind: Any, value: Any) -> Any:
    if kind is NoneType and value is None:
        return None
    if kind in (datetime, date) and isinstance(value, str):
        return kind.fromisoformat(value)
    if kind in (Decimal, float) and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return kind(str(value))
        except InvalidOperation as error:
            raise ValueError(f"{value!r} is no number.") from error
    if kind in (str, int, bool) and type(value) is kind:
        return value
    raise TypeError(f"{value!r} is of another type than {kind}.")


def _shown(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, ApiModel):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, list | tuple):
        return [_shown(each, exclude_none) for each in value]
    if isinstance(value, Mapping):
        return {name: _shown(each, exclude_none) for name, each in value.items()}
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value
