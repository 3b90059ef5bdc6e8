"""Base of the serializers of rows that superadmins administer: every field is exact, unknown ones are refused."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from django.db import models
from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.validators import UniqueValidator

from accounts.serializers import StrictSerializer
from resources.amounts.fields import FgpuField, SizeField, SpanField

Row = TypeVar("Row", bound=models.Model)

FGPU_FIELDS = ("fgpu", "min_fgpu")


class RecordSerializer(StrictSerializer, serializers.ModelSerializer[Row], Generic[Row]):
    """A row with all that administrators decide; memory is written as "8g", fGPU as "0.5", time as "4h"."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DurationField: SpanField,
    }

    def build_standard_field(self, field_name: str, model_field: models.Field[Any, Any]) -> tuple[Any, dict[str, Any]]:
        """Return class and arguments of a field, those of amounts from `resources.amounts.fields`."""
        field_class, arguments = super().build_standard_field(field_name, model_field)
        if isinstance(model_field, models.PositiveBigIntegerField) and "(bytes)" in str(model_field.verbose_name):
            field_class = SizeField
        elif field_name in FGPU_FIELDS:
            field_class = FgpuField
        if field_class in (SizeField, FgpuField, SpanField):
            arguments = {name: value for name, value in arguments.items() if name in ("allow_null", "required")}
        # The form finds out what is taken.
        validators = [each for each in arguments.pop("validators", []) if not isinstance(each, UniqueValidator)]
        return field_class, arguments | ({"validators": validators} if validators else {})

    def get_validators(self) -> list[Any]:
        """Return none: the form checks what concerns several fields or rows."""
        return []

    def get_uniqueness_extra_kwargs(self, *args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments as they are declared: that of several fields is unique asks for none of them."""
        return args[2], {}

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated data; raise ValidationError for unknown fields, and for those that are only shown."""
        shown = {}
        if isinstance(data, Mapping):
            fields = self.fields
            shown = {
                name: [_("This field is only shown.")] for name in data if name in fields and fields[name].read_only
            }
        if shown:
            raise ValidationError(shown)
        return super().to_internal_value(data)

    def writable(self) -> dict[str, str]:
        """Return {name in the API: name in the form} of the fields that may be sent."""
        return {name: str(field.source) for name, field in self.fields.items() if not field.read_only}
