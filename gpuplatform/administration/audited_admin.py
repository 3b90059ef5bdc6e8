"""The part of the administration that records what administrators do, for every model of the site."""

from typing import Any, Final, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms import BaseModelForm, BaseModelFormSet, BooleanField, ModelChoiceField, ModelMultipleChoiceField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext

from accounts import audit
from accounts.models import User

VALUES: Final = "values"  # a part of the message that Django's own log of the administration skips
MAX_ACTION_ROWS: Final = 900  # compared before and after; a form may have 1,000 fields, one a row where it asks first


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
        rows = {audit.key_of(row): row for row in queryset}
        for key, values in audit.stored_values({key: type(row) for key, row in rows.items()}).items():
            _record(request, "deleted", rows[key], audit.difference(type(rows[key]), values, {}))
        return super().log_deletions(request, queryset)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Show the entries of the audit log on the object, which outlive it."""
        found = {"object_type__exact": self.model._meta.label, "object_id__exact": unquote(object_id)}
        return redirect(f"{reverse('admin:accounts_auditentry_changelist')}?{urlencode(found)}")

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show or save the form; an object whose act a service records is not recorded again."""
        with audit.once():
            return super().changeform_view(request, *args, **kwargs)

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any) -> HttpResponse | None:
        """Carry out an action and record what it changed; one that leads to a form changes nothing yet.

        One of more rows than can be compared before and after is refused.
        """
        rows = _chosen_rows(request, queryset)
        if len(rows) > MAX_ACTION_ROWS:
            text = gettext("An action takes at most %(count)d rows at once, so nothing was changed. Filter the list.")
            self.message_user(request, text % {"count": MAX_ACTION_ROWS}, messages.ERROR)
            return None
        name = next((name for name in request.POST.getlist("action") if name), "")
        with audit.act(cast(User, request.user), name, *rows):
            return super().response_action(request, queryset, *args)

    def _record(self, request: HttpRequest, action: str, obj: Model, message: Any) -> Any:
        """Record the act and return the message for Django's log."""
        parts = message if isinstance(message, list) else []
        changes: audit.Changes = next((part[VALUES] for part in parts if VALUES in part), {})
        _record(request, action, obj, changes)
        return [part for part in parts if VALUES not in part] if parts else message


def _chosen_rows(request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows that Django's action takes, one more than MAX_ACTION_ROWS at most."""
    manager: Any = queryset.model._default_manager
    if BooleanField().to_python(request.POST.get("select_across")):  # all that match, on other pages of the list too
        found: QuerySet[Any] = manager.filter(pk__in=queryset.order_by().values("pk"))
    else:
        found = manager.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
    return found[: MAX_ACTION_ROWS + 1]


def _record(request: HttpRequest, action: str, obj: Model, changes: audit.Changes) -> None:
    if isinstance(request.user, User):
        audit.record(request.user, action, obj, changes)


def _form_changes(form: BaseModelForm[Any]) -> dict[str, tuple[str | None, str | None]]:
    """Return {field: (before, after)} of the fields that were changed; of several objects, those taken and added."""
    changes = {}
    for name in form.changed_data:
        if name not in form.cleaned_data:
            continue
        old, new = _initial(form, name), form.cleaned_data[name]
        if isinstance(new, QuerySet):
            before, after = set(map(str, old or ())), set(map(str, new))
            old, new = list(before - after), list(after - before)
        changes[name] = (audit.as_text(name, old), audit.as_text(name, new))
    return changes


def _initial(form: BaseModelForm[Any], name: str) -> Any:
    """Return the value that the field had, for a foreign key the object."""
    old, field = form.initial.get(name), form.fields[name]
    if not isinstance(field, ModelChoiceField) or isinstance(field, ModelMultipleChoiceField):
        return old
    try:
        return field.to_python(old) or old
    except ValidationError:
        return old


def _inline_changes(formsets: list[BaseModelFormSet[Any, Any]]) -> dict[str, tuple[str | None, str | None]]:
    """Return what was added, changed and deleted among the rows that belong to the object."""
    changes: dict[str, tuple[str | None, str | None]] = {}
    for formset in formsets:
        changes |= {_name(row): (None, str(row)) for row in formset.new_objects}
        changes |= {_name(row): (str(row), None) for row in formset.deleted_objects}
        changed = {row.pk for row, _ in formset.changed_objects}
        for form in formset.initial_forms:
            if form.instance.pk in changed:
                changes |= {f"{_name(form.instance)}: {name}": both for name, both in _form_changes(form).items()}
    return changes


def _name(row: Model) -> str:
    return f"{row._meta.verbose_name} {row}"
