"""Pages of the scheduler: advice on the launch page, and the simulation for superadmins."""

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from accounts.requests import UserRequest
from scheduler.api import as_data
from scheduler.estimate import estimate
from scheduler.forms import SimulationForm
from sessions.errors import RejectedError
from sessions.forms import LaunchForm


@require_POST
@login_required
@never_cache
def advice(request: UserRequest) -> HttpResponse:
    """Render when the sessions of the launch form would start, or what is wrong with the form."""
    form = LaunchForm(request.user, request.POST)
    if not form.is_valid():
        return render(request, "scheduler/_advice.html", {"problem": next(iter(form.errors.values()))[0]})
    order = form.launch_request()
    try:
        found = as_data(estimate(request.user, order))
    except RejectedError as refusal:
        return render(request, "scheduler/_advice.html", {"problem": next(iter(refusal.errors.values()))})
    context = {**found, "count": order.count, "group": order.resource_group.name}
    return render(request, "scheduler/_advice.html", context)


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
        "title": "Simulation",
        "form": form,
        "found": found,
        "is_empty": form.is_bound and form.is_valid() and found is None,
        "curves": found and {"moments": found.moments, "waiting": found.waiting, "inUse": found.in_use},
    }
    return render(request, "admin/scheduler/simulation.html", context)
