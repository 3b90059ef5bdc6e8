"""Fields for amounts of memory, fGPU and time, for pages, administration and API: one reading of text for all.

A text carries its unit, such as "8g", "512m", "90m" or "4h"; an amount of fGPU is a plain decimal. Pages refuse a size
or time without a unit, because a 4 on a page may mean GiB. In the API a number is bytes or seconds, as its schema says.
"""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from resources.amounts.units import bytes_from, fgpu_text, milli_fgpu_from, span_from, with_unit
from translation.english import from_english

MAX_INTEGER: Final = 2**31 - 1  # of a PostgreSQL integer
MAX_BIG_INTEGER: Final = 2**63 - 1
MAX_EXPONENT: Final = 30
# What texts mean an amount, for the API's schema; `resources.amounts.units` reads them.
SIZE_PATTERN: Final = r"^[0-9]{1,19}(\.[0-9]{1,9})?\s*[kKmMgGtT]?([iI]?[bB])?$"
FGPU_PATTERN: Final = r"^\+?([0-9]{1,6}(\.[0-9]{0,2}0{0,10})?|\.[0-9]{1,2}0{0,10})$"
SPAN_PATTERN: Final = r"^[0-9]{1,6}(\.[0-9]{1,3})?\s*[mMhHdD]([iI][nN])?$"
SIZE_HELP: Final = gettext_lazy("With its unit, such as 512m or 8g")
FGPU_HELP: Final = gettext_lazy("In steps of 0.01, such as 0.5")

_UNITS: Final = (("t", 2**40), ("g", 2**30), ("m", 2**20), ("k", 2**10), ("b", 1))


class TypedAmountField(forms.IntegerField):
    """A form field for an amount that is written as text; an integer inside."""

    widget = AdminTextInputWidget
    read: Callable[[str], Any]

    def to_python(self, value: Any) -> Any:
        """Return the amount, or None for an empty text; raise ValidationError as `resources.amounts.units` words it."""
        if value in self.empty_values or not str(value).strip():
            return None
        try:
            return type(self).read(str(value))
        except ValueError as error:
            raise ValidationError(from_english(str(error))) from error


class SizeFormField(TypedAmountField):
    """Bytes, written with a unit: "8g" or "512m"."""

    @staticmethod
    def read(text: str) -> int:
        """Return the bytes; raise ValueError for a number without a unit too."""
        return bytes_from(with_unit(text))

    def prepare_value(self, value: Any) -> Any:
        """Return an integer in the largest unit that shows it exactly, and a text as it is."""
        if not isinstance(value, int):
            return value
        return next(
            f"{value // factor}{unit}" for unit, factor in _UNITS if factor == 1 or (value and not value % factor)
        )


class FgpuFormField(TypedAmountField):
    """Milli-fGPU, written as a decimal number of fGPU."""

    read = staticmethod(milli_fgpu_from)

    def prepare_value(self, value: Any) -> Any:
        """Return milli-fGPU as the decimal, and a text as it is."""
        return fgpu_text(value) if isinstance(value, int) else value


class SpanFormField(TypedAmountField):
    """A length of time, written with a unit: "90m", "4h" or "2d"."""

    read = staticmethod(span_from)


class _AmountField(serializers.Field[int, Any, Any, Any]):
    """An amount written as text or as a number; an integer of `limit` at most inside."""

    limit = MAX_INTEGER
    digits = 6  # of the whole part, as far as `read` goes
    read: Callable[[str], int]

    def to_internal_value(self, data: Any) -> int:
        """Return the integer; raise ValidationError with the message of `resources.amounts.units`."""
        if isinstance(data, bool) or not isinstance(data, int | Decimal | str):
            raise serializers.ValidationError("Write a number, or a text with one.")
        text = _plain(data) if isinstance(data, Decimal) else str(data).strip()
        if len(text) - len(text.lstrip("0123456789")) > self.digits:
            raise serializers.ValidationError("This is more than any host has.")
        try:
            value = type(self).read(text)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error
        if value > self.limit:
            raise serializers.ValidationError("This is more than any host has.")
        return value


def _plain(number: Decimal) -> str:
    """Return the number without an exponent, unless that would be absurdly long."""
    return f"{number:f}" if abs(number.adjusted()) < MAX_EXPONENT else str(number)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": MAX_BIG_INTEGER},
            {"type": "string", "pattern": SIZE_PATTERN, "example": "4g"},
        ]
    }
)
class SizeField(_AmountField):
    """Bytes, or a text such as "4g"; shown in bytes."""

    limit = MAX_BIG_INTEGER
    digits = 19
    read = staticmethod(bytes_from)

    def to_representation(self, value: int) -> int:
        """Return the bytes."""
        return value


@extend_schema_field(
    {"oneOf": [{"type": "string", "pattern": FGPU_PATTERN, "example": "0.5"}, {"type": "number", "minimum": 0}]}
)
class FgpuField(_AmountField):
    """fGPU in steps of 0.01, as text or number; shown as a decimal text. Milli-fGPU inside."""

    read = staticmethod(milli_fgpu_from)

    def to_representation(self, value: int) -> str:
        """Return the decimal text."""
        return fgpu_text(value)


@extend_schema_field({"type": "string", "example": "0.5"})
class FgpuTextField(FgpuField):
    """fGPU that is only shown."""


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string", "pattern": SPAN_PATTERN, "example": "4h"}]})
class SpanField(serializers.Field[timedelta, Any, Any, Any]):
    """Seconds, or a text such as "90m", "4h" or "2d"; shown in seconds."""

    def to_internal_value(self, data: Any) -> timedelta:
        """Return the span; raise ValidationError with the message of `resources.amounts.units`."""
        if isinstance(data, bool) or not isinstance(data, int | str):
            raise serializers.ValidationError('Write seconds, or a text such as "4h".')
        if isinstance(data, int):
            return timedelta(seconds=max(-MAX_INTEGER, min(data, MAX_INTEGER)))
        try:
            return span_from(data)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error

    def to_representation(self, value: timedelta) -> int:
        """Return whole seconds."""
        return int(value.total_seconds())
