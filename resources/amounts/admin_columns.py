"""Amounts of memory and fGPU in the administration: typed with their units, and shown in columns of lists."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib import admin
from django.db import models
from django.forms import Field
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from resources.amounts.fields import FGPU_HELP, SIZE_HELP, FgpuFormField, SizeFormField
from resources.amounts.units import fgpu_text, size_text

SPAN_HELP: Final = gettext_lazy("As days and hours:minutes:seconds, such as 7 00:00:00")
FGPU_FIELDS: Final = ("fgpu", "min_fgpu")


class AmountsAdmin(admin.ModelAdmin[Any]):
    """An admin in which memory is written as "8g" and fGPU as "0.5"."""

    def formfield_for_dbfield(self, db_field: models.Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field of a model field, from `resources.amounts.fields` for memory and fGPU."""
        if isinstance(db_field, models.PositiveBigIntegerField) and "(bytes)" in str(db_field.verbose_name):
            return _amount(db_field, SizeFormField, "(bytes)", SIZE_HELP)
        if db_field.name in FGPU_FIELDS:
            return _amount(db_field, FgpuFormField, "milli-fGPU", FGPU_HELP, "fGPU")
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(db_field, models.DurationField) and field is not None:
            field.help_text = sentences(field.help_text, SPAN_HELP)
        return field


def _amount(field: models.Field[Any, Any], form_class: type[Field], unit: str, help_text: Any, name: str = "") -> Any:
    """Return a form field whose label has no unit: the typed text has one."""
    label = str(field.verbose_name).replace(unit, name).strip()
    label = label if label.startswith("fGPU") else label[:1].upper() + label[1:]
    if form_class is SizeFormField:
        help_text = sentences(field.help_text, help_text)
    return field.formfield(form_class=form_class, label=label, help_text=help_text)


def sentences(*texts: Any) -> str:
    """Return texts of help as sentences that follow each other; those that are empty are left out."""
    return " ".join(f"{str(text).rstrip('.')}." for text in texts if text)


def memory_column(field: str, title: str) -> Any:
    """Return a list column of memory as text such as "8 GiB"; "unlimited" for None."""
    return value_column(field, title, lambda value: gettext("unlimited") if value is None else size_text(value))


def fgpu_column(field: str, title: str) -> Any:
    """Return a list column of milli-fGPU as a decimal of fGPU; "unlimited" for None."""
    return value_column(field, title, lambda value: gettext("unlimited") if value is None else fgpu_text(value))


def value_column(field: str, title: str, shown: Callable[[Any], object] = int) -> Any:
    """Return a list column of a field, or of what the queryset is annotated with."""

    @admin.display(description=title, ordering=field)
    def column(row: Any) -> object:
        return shown(getattr(row, field))

    return column
