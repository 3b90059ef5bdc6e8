"""Quantities, durations, times and lists of numbers, as people and programs write them into forms and the API."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ValidationError as FormError
from rest_framework.exceptions import ValidationError

from arrays import metrics, spaces, typed_spaces
from arrays.serializers import SpaceField
from arrays.spaces import SpaceError
from endpoints.launcher.forms import PortField
from folders.serializers import PathField
from pages.deployments.forms import LinesField, StepsField, VariablesField
from pages.launch.fields import DependenciesFormField, PairsField
from resources.amounts import units
from resources.amounts.fields import (
    MAX_BIG_INTEGER,
    MAX_INTEGER,
    FgpuField,
    FgpuFormField,
    SizeField,
    SizeFormField,
    SpanField,
    SpanFormField,
)
from resources.forms import LinedJsonField
from sessions.launching.serializers import DependenciesField, EnvironmentField, GroupsField, MountsField
from specs.launch_templates.bodies import ScalarField

MOST: Final = 1000  # tasks of an array
API_FIELDS: Final[list[Callable[[], Any]]] = [
    *(SizeField, FgpuField, SpanField, SpaceField, PathField, ScalarField),
    *(DependenciesField, EnvironmentField, GroupsField, MountsField),
]
FORM_FIELDS: Final[list[Callable[[], Any]]] = [
    *(SizeFormField, FgpuFormField, SpanFormField, PortField, LinedJsonField),
    *(LinesField, StepsField, VariablesField),
]


def _text(data: bytes) -> str:
    """Return the text, with lone surrogates for what is no UTF-8, as JSON can carry them."""
    return data.decode(errors="surrogateescape")


def _json(data: bytes) -> Any:
    """Return the value as the API reads it, or the text where it is no JSON."""
    try:
        return json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        return data.decode(errors="replace")


def units_of_amounts(data: bytes) -> None:
    """A text is an amount that is written back as the same one, or refused by ValueError."""
    text = _text(data)
    with suppress(ValueError):
        size = units.bytes_from(text)
        assert units.bytes_from(units.exact_size_text(size)) == size
        assert units.bytes_from(units.size_text(size)) <= size
    with suppress(ValueError):
        milli = units.milli_fgpu_from(text)
        assert units.milli_fgpu_from(units.fgpu_text(milli)) == milli
    with suppress(ValueError):
        assert units.span_from(text) >= timedelta()
    with suppress(ValueError):
        assert units.with_unit(text) == text


def api_fields(data: bytes) -> None:
    """Each field of the API returns a value that fits its column, or refuses by ValidationError."""
    for value in (_json(data), data.decode(errors="replace")):
        for make in API_FIELDS:
            field = make()
            with suppress(ValidationError):
                found = field.run_validation(value)
                if isinstance(field, SizeField):
                    assert 0 <= found <= MAX_BIG_INTEGER
                if isinstance(field, FgpuField):
                    assert 0 <= found <= MAX_INTEGER
                if isinstance(field, SpanField):
                    assert abs(found) <= timedelta(seconds=MAX_INTEGER)


def form_fields(data: bytes) -> None:
    """Each field of a form returns a value, shows it, or refuses by ValidationError."""
    text = data.decode(errors="replace")
    for make in FORM_FIELDS:
        field = make()
        with suppress(FormError):
            field.prepare_value(field.clean(text))
    with suppress(FormError):
        DependenciesFormField().clean(text.split())
    with suppress(FormError):
        PairsField().clean([line.partition("=")[::2] for line in text.splitlines()])


def array_indices(data: bytes) -> None:
    """A text of indices names at most as many as may be, each once."""
    with suppress(SpaceError):
        indices, most = spaces.read_indices(_text(data), MOST)
        assert len(set(indices)) == len(indices) <= MOST
        assert most is None or most > 0


def array_space(data: bytes) -> None:
    """An object of parameters makes at most as many tasks as may be, which JSON can carry, or is refused."""
    with suppress(SpaceError):
        found = spaces.read(_json(data), MOST)
        assert 0 < len(found.tasks) <= MOST
        json.dumps([found.stored, found.tasks], allow_nan=False).encode()


def typed_space(data: bytes) -> None:
    """What people type or paste from a table of parameters is a space that is typed back as the same."""
    text = _text(data)
    for kind in spaces.KINDS:
        with suppress(SpaceError):
            asked = typed_spaces.space_of(kind, text, 3, 1)
            found = spaces.read(asked, MOST)
            written = typed_spaces.space_of(*typed_spaces.typed(asked), 3, 1)
            assert spaces.read(written, MOST).tasks == found.tasks


def task_metrics(data: bytes) -> None:
    """What a task prints is read as finite numbers, or not at all."""
    json.dumps(metrics.read(metrics.MARK + data.decode(errors="replace")), allow_nan=False)
