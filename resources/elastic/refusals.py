"""What is wrong with a pool's configuration, in words at the field that is meant."""

from typing import Any

from django.core.exceptions import ValidationError

from restapi.problems import messages_by_field


def refusal_of(errors: Any) -> ValidationError:
    """Return the errors of a serializer as one of a single field, each named by the part that it concerns."""
    general, of_fields = messages_by_field(errors)
    return ValidationError([*general, *(f"{name}: {text}" for name, texts in of_fields.items() for text in texts)])
