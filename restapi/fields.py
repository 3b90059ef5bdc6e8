"""Fields and bases of serializers that all packages share."""

from typing import Any, Generic, TypeVar

from django.db.models import Model
from rest_framework import serializers

Row = TypeVar("Row", bound=Model)


class RowNameField(serializers.SlugRelatedField[Row]):
    """A row, given by a unique name that is a text."""

    def to_internal_value(self, data: Any) -> Row:
        """Return the row; raise ValidationError where there is none of this name."""
        if not isinstance(data, str) or "\0" in data:  # no text of the database has NUL
            self.fail("does_not_exist", slug_name=self.slug_field, value=str(data)[:100])
        return super().to_internal_value(data)


class ShownSerializer(serializers.ModelSerializer[Row], Generic[Row]):
    """A row as it is shown: none of its fields is ever written."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        meta: Any = cls.Meta
        meta.read_only_fields = meta.fields
