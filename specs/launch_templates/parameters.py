"""The parameters of a template: their types, and which values they take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from resources.amounts.fields import MAX_INTEGER, FgpuField, SizeField

MAX_TEXT: Final = 4000  # characters of a value
TEXT, CHOICE, FOLDER, BOOLEAN = "text", "choice", "folder", "boolean"
AMOUNTS: Final = ("memory", "fgpu")  # whose values stay as they are written
TEXTS: Final = (TEXT, CHOICE, FOLDER)

_text = partial(serializers.CharField, max_length=MAX_TEXT, trim_whitespace=False)
TYPES: Final[Mapping[str, Callable[[], serializers.Field[Any, Any, Any, Any]]]] = {
    TEXT: _text,
    "integer": partial(serializers.IntegerField, min_value=-(2**63), max_value=2**63 - 1),
    "decimal": partial(serializers.DecimalField, max_digits=40, decimal_places=None),
    CHOICE: _text,
    BOOLEAN: serializers.BooleanField,
    "cpu": partial(serializers.IntegerField, min_value=1, max_value=MAX_INTEGER),
    "memory": SizeField,
    "fgpu": FgpuField,
    FOLDER: _text,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateParameter:
    """What is asked for before a launch."""

    name: str
    type: str
    help: str = ""
    required: bool = True
    default: Any = None
    min: Any = None
    max: Any = None
    choices: tuple[str, ...] = ()

    def value_of(self, given: Any) -> Any:
        """Return the value that is filled in; None for one that is left out. Raises ValidationError."""
        if given is None or given == "":
            given = self.default
        if given is None or given == "":
            if self.required:
                raise ValidationError(_("This is needed."))
            return None
        value = self.compared(given)
        if self.type == CHOICE and value not in self.choices:
            raise ValidationError(_("Allowed: %(names)s.") % {"names": ", ".join(self.choices)})
        if self.min is not None and value < self.compared(self.min):
            raise ValidationError(_("This is at least %(bound)s.") % {"bound": self.min})
        if self.max is not None and value > self.compared(self.max):
            raise ValidationError(_("This is at most %(bound)s.") % {"bound": self.max})
        return given if self.type in AMOUNTS else value

    def compared(self, given: Any) -> Any:
        """Return a value as it is compared with bounds. Raises ValidationError."""
        return TYPES[self.type]().run_validation(given)
