"""The launch page, and its parts that change: advice on when sessions would start, images that are being built."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.models import User
from accounts.requests import UserRequest
from pages.launch import queries
from pages.launch.advice import choices_of, parts_of
from pages.launch.forms import LaunchForm
from resources.images import builds
from scheduler.estimate import estimate
from sessions.errors import RejectedError
from sessions.lifecycle import Kind
from sessions.models import Session


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def launch(request: UserRequest) -> HttpResponse:
    """Show the launch form, or launch its sessions."""
    form = LaunchForm(request.user, request.POST or None, folder_id=request.GET.get("folder", ""))
    if request.method == "POST" and form.is_valid() and (started := form.save()):
        messages.success(request, _launched(started))
        return redirect(reverse("sessions:list") + _launcher_fragment(started))
    context = {
        "form": form,
        "facts": queries.launch_facts(request.user),
        "disabled_images": queries.disabled_images(),
        **_build_context(request.user),
    }
    return render(request, "sessions/launch.html", context, status=422 if form.is_bound else 200)


@require_safe
@login_required
@never_cache
def image_builds(request: UserRequest) -> HttpResponse:
    """Show how far the images are that cannot be used yet: the part of the launch page that changes."""
    return render(request, "sessions/_image_builds.html", _build_context(request.user))


@require_POST
@login_required
@never_cache
def advice(request: UserRequest) -> HttpResponse:
    """Render when the sessions of the launch form would start, or what is wrong with the form."""
    form = LaunchForm(request.user, request.POST)
    if not form.is_valid():
        return render(request, "launch/_advice.html", {"problem": next(iter(form.errors.values()))[0]})
    order = form.launch_request()
    try:
        found = estimate(request.user, order)
    except RejectedError as refusal:
        return render(request, "launch/_advice.html", {"problem": next(iter(refusal.errors.values()))})
    context = {"parts": parts_of(found.advice.sessions), "choices": choices_of(found, order)}
    return render(request, "launch/_advice.html", context)


def _launcher_fragment(sessions: list[Session]) -> str:
    """Return the URL fragment that opens the app launcher of the first of these sessions that runs."""
    ids = [session.pk for session in sessions if session.kind == Kind.INTERACTIVE]
    return f"#launched={','.join(ids)}" if ids else ""


def _launched(sessions: list[Session]) -> str:
    return f"Launched {sessions[0].name}." if len(sessions) == 1 else f"Launched {len(sessions)} sessions."


def _build_context(user: User) -> dict[str, Any]:
    """Return the builds to show: what cannot be launched yet, and to superadmins also what is only outdated."""
    shown = [status for status in builds.statuses() if user.is_superuser or not status.is_usable]
    return {"builds": shown, "is_building": any(status.is_active for status in shown)}
