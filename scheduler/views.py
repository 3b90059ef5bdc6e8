"""The page of the simulation, for superadmins."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts.requests import UserRequest
from scheduler.forms import SimulationForm


@require_safe
@never_cache
def simulation(request: UserRequest) -> HttpResponse:
    """Render the comparison of both replays, for superadmins; a GET, as nothing is written."""
    if not request.user.is_superuser:
        raise PermissionDenied
    form = SimulationForm(request.GET) if request.GET else SimulationForm()
    found = form.compare() if form.is_bound and form.is_valid() else None
    context = {
        **admin.site.each_context(request),
        "title": gettext("Simulation"),
        "form": form,
        "found": found,
        "is_empty": form.is_bound and form.is_valid() and found is None,
        "curves": found and {"moments": found.moments, "waiting": found.waiting, "inUse": found.in_use},
    }
    return render(request, "admin/scheduler/simulation.html", context)
