"""The page of the configuration for superadmins: download, preview of a file, import."""

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.forms import FileOrTextForm
from accounts.requests import UserRequest
from operations.configuration import services as configuration
from operations.configuration.services import ConfigurationError, RowChange


class ConfigurationForm(FileOrTextForm):
    """The configuration."""

    file = forms.FileField(required=False, label=gettext_lazy("YAML file"))


@require_safe
@never_cache
def export(request: UserRequest) -> HttpResponse:
    """Send the configuration as a file."""
    if not request.user.is_superuser:
        raise PermissionDenied
    headers = {"Content-Disposition": 'attachment; filename="gpuplatform.yaml"'}
    return HttpResponse(configuration.export(), content_type="application/yaml; charset=utf-8", headers=headers)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def import_view(request: UserRequest) -> HttpResponse:
    """Show the form, what a file would change, or import it; a file with errors is never imported in part."""
    if not request.user.is_superuser:
        raise PermissionDenied
    form = ConfigurationForm(request.POST, request.FILES) if request.method == "POST" else ConfigurationForm()
    changes: list[RowChange] | None = None
    problems: dict[str, str] = {}
    if form.is_bound and form.is_valid():
        text = form.cleaned_data["text"]
        try:
            if "import" in request.POST:
                done = configuration.carry_out(text, actor=request.user, digest=form.cleaned_data["digest"])
                said = ngettext("%(count)d row was imported.", "%(count)d rows were imported.", len(done))
                messages.success(request, said % {"count": len(done)})
                return redirect("configuration")
            changes = configuration.preview(text)
        except ConfigurationError as error:
            problems = dict(error.problems)
    context = {
        **admin.site.each_context(request),
        "title": _("Configuration"),
        "form": form,
        "changes": changes,
        "digest": configuration.digest_of(changes) if changes else "",
        "problems": problems,
    }
    status = 422 if form.errors or problems else 200
    return render(request, "admin/configuration.html", context, status=status)
