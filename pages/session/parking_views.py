"""The dialogs that park a session and resume it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django_htmx.http import trigger_client_event

from accounts.requests import UserRequest, signed_in_form
from sessions.errors import RejectedError
from sessions.models import Session
from sessions.parking import services as parking


class _Act(NamedTuple):
    """What a dialog does, and how that is announced."""

    do: Callable[..., None]
    refusal: Callable[[Session], str]
    done: str


_ACTS: Final = {
    "park": _Act(parking.park, parking.refusal, gettext_noop("Parking %(name)s.")),
    "resume": _Act(parking.resume, parking.resume_refusal, gettext_noop("Resuming %(name)s.")),
}


@signed_in_form
def park(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or park the session."""
    return _show_or_do(request, session_id, "park")


@signed_in_form
def resume(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or let the session wait for its host."""
    return _show_or_do(request, session_id, "resume")


def _show_or_do(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    operable = Session.objects.operable_by(request.user).select_related("owner__policy", "project__policy", "parked_on")
    session, act = get_object_or_404(operable, pk=session_id), _ACTS[name]
    error = ""
    if request.method == "POST":
        try:
            act.do(session, actor=request.user)
        except RejectedError as rejected:
            error = " ".join(rejected.errors.values())
        else:
            return _done(request, session, _(act.done) % {"name": session.name})
    context = {
        "session": session,
        "act": name,
        "title": _("Park") if name == "park" else _("Resume"),
        "refusal": "" if error else act.refusal(session),
        "error": error,
        "longest": parking.longest(session),
    }
    template = "sessions/_park.html" if request.htmx else "sessions/park.html"
    return render(request, template, context, status=422 if error else 200)


def _done(request: UserRequest, session: Session, text: str) -> HttpResponse:
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "sessions:parked", {"message": text})
    messages.success(request, text)
    return redirect("sessions:detail", session.pk)
