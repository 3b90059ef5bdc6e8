"""The page of services for superadmins: what runs, starts, stops, and what it has logged."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.models import User
from accounts.requests import UserRequest
from operations.services import hosts as host_services
from operations.services.acts import NEEDED_BY_PAGES, carry_out, refusal
from operations.services.base import DEFAULT_LINES, ServiceAction, ServiceControlError, ServiceState
from operations.services.local import local_manager
from resources.models import Host


class ServiceActForm(forms.Form):
    """What to do with which service of this machine, or with the worker of a host."""

    action = forms.ChoiceField(choices=[(action.value, action.value) for action in ServiceAction])
    service = forms.SlugField(required=False)
    host = forms.ModelChoiceField(Host.objects.all(), to_field_name="name", required=False)

    def clean(self) -> dict[str, Any]:
        """Return the data. Raises ValidationError where it is not one thing, or cannot be done from a page."""
        data = super().clean() or self.cleaned_data
        if bool(data.get("service")) == bool(data.get("host")):
            raise forms.ValidationError(_("Choose a service or a host."))
        if data.get("host") and data.get("action") != ServiceAction.RESTART:
            raise forms.ValidationError(_("A host's worker can only be restarted from here."))
        if data.get("service") and "action" in data and (text := refusal(data["action"], data["service"])):
            raise forms.ValidationError(text)
        return data


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def services(request: UserRequest) -> HttpResponse:
    """Show the services of this machine and those of hosts, or act on one of them."""
    if not request.user.is_superuser:
        raise PermissionDenied
    form = ServiceActForm(request.POST) if request.method == "POST" else ServiceActForm()
    if form.is_bound and form.is_valid():
        _act(request, form.cleaned_data)
        return redirect("services")
    states, title, problem = _states()
    context = {
        **admin.site.each_context(request),
        "title": _("Services"),
        "form": form,
        "manager": title,
        "problem": problem,
        "states": states,
        "hosts": host_services.read(),
        "needed": NEEDED_BY_PAGES,
    }
    return render(request, "admin/services.html", context, status=422 if form.errors else 200)


@require_safe
@never_cache
def log(request: UserRequest, name: str) -> HttpResponse:
    """Show the newest lines that a service of this machine has logged."""
    if not request.user.is_superuser:
        raise PermissionDenied
    lines: list[str] = []
    problem = ""
    try:
        lines = local_manager().log(name, DEFAULT_LINES)
    except ServiceControlError as error:
        problem = str(error)
    context = {**admin.site.each_context(request), "title": name, "name": name, "lines": lines, "problem": problem}
    return render(request, "admin/service_log.html", context, status=404 if problem else 200)


def _states() -> tuple[list[ServiceState], str, str]:
    """Return the states, what manages the services, and why there are none."""
    try:
        manager = local_manager()
        return manager.states(), manager.title, ""
    except ServiceControlError as error:
        return [], "", str(error)


def _act(request: HttpRequest, data: dict[str, Any]) -> None:
    """Act, and leave a message that says what came of it."""
    user, action = request.user, ServiceAction(data["action"])
    assert isinstance(user, User)
    if host := data["host"]:
        host_services.restart_worker(host, actor=user)
        messages.success(request, _("%(name)s was asked to restart its worker.") % {"name": host.name})
        return
    try:
        is_done = carry_out(local_manager(), action, data["service"], actor=user)
    except ServiceControlError as error:
        messages.error(request, str(error))
        return
    text = _("%(name)s: done.") if is_done else _("%(name)s: this takes a moment.")
    messages.success(request, text % {"name": data["service"]})
