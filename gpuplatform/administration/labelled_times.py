"""The fields of a date and a time in the administration, each with a label of its own."""

from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.db.models import DateTimeField
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

PARTS = {"date": _("Date"), "time": _("Time (UTC)")}


class LabelledDateTime(AdminSplitDateTime):
    """A date and a time; screen readers hear the field's own label as well, since Django labels neither."""

    label: Any = ""  # of the field

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Return Django's context with labels in place of plain words."""
        context = super().get_context(name, value, attrs)
        for (part, words), widget in zip(PARTS.items(), context["widget"]["subwidgets"], strict=True):
            label = '<label for="{}"><span class="visually-hidden">{}</span> {}</label>'
            context[f"{part}_label"] = format_html(label, widget["attrs"]["id"], self.label, words)
        return context


class LabelledAdmin(ModelAdmin[Any]):
    """Labels the dates and times of its form."""

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return Django's field for a field of the model, a date and time with labels."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(db_field, DateTimeField) and field is not None:
            field.widget = LabelledDateTime()
            field.widget.label = field.label
        return field
