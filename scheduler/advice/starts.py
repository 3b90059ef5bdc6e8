"""The start of sessions not yet submitted, as the API shows it."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scheduler.advice.advisor import Starts


@extend_schema_field({"anyOf": [{"type": "string", "enum": ["now"]}, {"type": "string", "format": "date-time"}]})
class StartsField(serializers.Field[Any, Any, Any, Any]):
    """ "now", a time, or null where the start cannot be estimated."""

    def to_representation(self, value: Starts) -> str | None:
        """Return the text."""
        return value if value is None or isinstance(value, str) else value.isoformat().replace("+00:00", "Z")
