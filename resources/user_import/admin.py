"""The page of the administration that imports users from CSV: file, preview, import."""

from typing import Any, Final, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy, ngettext

from accounts.forms import FileOrTextForm
from accounts.models import User
from accounts.signing_in import welcome
from resources.user_import import services as user_import
from resources.user_import.services import UserImport, UserImportError

EXAMPLE: Final = "email,first_name,last_name,policy,projects\nmina@example.org,Mina,Park,default,\n"


class UserImportForm(FileOrTextForm):
    """A table of users, and whether they are told."""

    file = forms.FileField(required=False, label=gettext_lazy("CSV file"))
    sends_mail = forms.BooleanField(
        required=False, initial=True, label=gettext_lazy("Mail new users a link to choose a password")
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["text"].widget.attrs |= {"rows": 8, "placeholder": EXAMPLE}


class UserImportPages(admin.ModelAdmin[User]):
    """Adds the import to the administration of users."""

    change_list_template = "admin/accounts/user/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Return the pages of users, with that of the import."""
        view = self.admin_site.admin_view(self.import_view)
        return [path("import/", view, name="accounts_user_import"), *super().get_urls()]

    def import_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form, what the file would do, or import it; a file with errors is never imported in part."""
        if not (self.has_add_permission(request) and self.has_change_permission(request)):
            raise PermissionDenied
        form = UserImportForm(request.POST, request.FILES) if request.method == "POST" else UserImportForm()
        planned = None
        if form.is_bound and form.is_valid():
            try:
                if "import" in request.POST:
                    return self._import(request, form)
                planned = user_import.plan(form.cleaned_data["text"])
            except UserImportError as error:
                form.add_error(None, str(error))
                planned = _plan_again(form)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Import users from CSV"),
            "form": form,
            "plan": planned,
            "columns": user_import.COLUMNS,
            "separator": user_import.BETWEEN_NAMES,
        }
        status = 422 if form.errors else 200
        return render(request, "admin/accounts/user/import.html", context, status=status)

    def _import(self, request: HttpRequest, form: UserImportForm) -> HttpResponse:
        actor = cast(User, request.user)
        data = form.cleaned_data
        done = user_import.carry_out(data["text"], actor=actor, digest=data["digest"])
        if data["sends_mail"]:
            for row in done.rows:
                if row.is_new:
                    welcome.send(row.user, by=actor)
        made = ngettext("%(count)d account was made", "%(count)d accounts were made", done.new_count)
        changed = ngettext("%(count)d was changed.", "%(count)d were changed.", done.changed_count)
        text = f"{made % {'count': done.new_count}}, {changed % {'count': done.changed_count}}"
        self.message_user(request, text, messages.SUCCESS)
        return redirect("admin:accounts_user_changelist")


def _plan_again(form: UserImportForm) -> UserImport | None:
    """Return what the file would do by now; None where it is no table."""
    try:
        return user_import.plan(form.cleaned_data["text"])
    except UserImportError:
        return None
