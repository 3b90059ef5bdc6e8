"""The part of the administration that records what administrators do, for every model of the site."""

from typing import Any, Final

from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import BaseModelForm, BaseModelFormSet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from accounts import audit, logins
from accounts.models import User

VALUES: Final = "values"  # a part of the message that Django's own log of the administration skips
MAX_ACTION_ROWS: Final = 1000  # whose values are compared before and after an action


class AuditedAdmin(ModelAdmin[Any]):
    """Records additions, changes, deletions and actions with the values before and after."""

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Return Django's message with the values of the form and its inlines for `log_addition` and `log_change`."""
        message = super().construct_change_message(request, form, formsets, add)
        return [*message, {VALUES: {**_form_changes(form), **_inline_changes(formsets or [])}}]

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record an addition."""
        plain = self._record(request, "added", obj, message)
        return super().log_addition(request, obj, plain)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record a change."""
        plain = self._record(request, "changed", obj, message)
        return super().log_change(request, obj, plain)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Record deletions with the values that are lost."""
        for row in queryset:
            _record(request, "deleted", row, audit.difference(audit.values_of(row), {}))
        return super().log_deletions(request, queryset)

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any) -> HttpResponse | None:
        """Carry out an action and record what it changed; a page that asks for more is not yet an act."""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        rows = list(queryset.model._default_manager.filter(pk__in=chosen[:MAX_ACTION_ROWS]))
        before = {row.pk: audit.values_of(row) for row in rows}
        with transaction.atomic():
            response = super().response_action(request, queryset, *args)
            name = next((name for name in request.POST.getlist("action") if name), "")
            if isinstance(response, HttpResponseRedirect) and name and name != "delete_selected":
                after = queryset.model._default_manager.in_bulk(list(before))
                for row in rows:
                    changes = audit.difference(
                        before[row.pk], audit.values_of(after[row.pk]) if row.pk in after else {}
                    )
                    _record(request, name, row, changes)
        return response

    def _record(self, request: HttpRequest, action: str, obj: Model, message: Any) -> Any:
        """Record the act and return the message for Django's log."""
        parts = message if isinstance(message, list) else []
        changes: audit.Changes = next((part[VALUES] for part in parts if VALUES in part), {})
        _record(request, action, obj, changes)
        return [part for part in parts if VALUES not in part] if parts else message


def _record(request: HttpRequest, action: str, obj: Model, changes: audit.Changes) -> None:
    if isinstance(request.user, User):
        audit.record(request.user, action, obj, changes, address=logins.address_of(request))


def _form_changes(form: BaseModelForm[Any]) -> dict[str, tuple[str | None, str | None]]:
    """Return {field: (before, after)} of the fields that were changed."""
    return {
        name: (audit.as_text(name, form.initial.get(name)), audit.as_text(name, form.cleaned_data.get(name)))
        for name in form.changed_data
        if name in form.cleaned_data
    }


def _inline_changes(formsets: list[BaseModelFormSet[Any, Any]]) -> dict[str, tuple[str | None, str | None]]:
    """Return what was added, changed and deleted among the rows that belong to the object."""
    changes: dict[str, tuple[str | None, str | None]] = {}
    for formset in formsets:
        changes |= {_name(row): (None, str(row)) for row in formset.new_objects}
        changes |= {_name(row): (", ".join(fields), str(row)) for row, fields in formset.changed_objects}
        changes |= {_name(row): (str(row), None) for row in formset.deleted_objects}
    return changes


def _name(row: Model) -> str:
    return f"{row._meta.verbose_name} {row}"
