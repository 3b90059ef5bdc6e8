"""The look of django-allauth's forms on the platform's pages."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.functional import Promise


class PlatformLook(forms.Form):
    """To come first among the bases of a form: fields have the platform's style and labels, and no placeholders."""

    labels: Mapping[str, str | Promise] = {}
    help_texts: Mapping[str, str | Promise] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            is_box = isinstance(field.widget, forms.CheckboxInput)
            field.widget.attrs["class"] = "form-check-input" if is_box else "form-control"
            field.widget.attrs.pop("placeholder", None)
            if name in self.labels:
                field.label = str(self.labels[name])
            if name != "password1":  # whose help are the rules for passwords
                field.help_text = str(self.help_texts.get(name, ""))
