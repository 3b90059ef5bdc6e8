"""What the dialogs of a session share: htmx gets the dialog alone, others a page of its own."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import trigger_client_event

from accounts.requests import UserRequest
from sessions.errors import RejectedError
from sessions.models import Session


def render_dialog(
    request: UserRequest, name: str, context: dict[str, Any], *, is_refused: bool = False
) -> HttpResponse:
    """Show a dialog; with the reasons of a refusal, as 422."""
    template = f"sessions/_{name}.html" if request.htmx else f"sessions/{name}.html"
    return render(request, template, context, status=422 if is_refused else 200)


def done(
    request: UserRequest, text: str, event: str, session: Session | None = None, *, undo: Sequence[str] = ()
) -> HttpResponse:
    """Say what was done: htmx gets an event, others are sent to the session's page, or to the list.

    `undo` are the ids of sessions whose end can be undone.
    """
    if request.htmx:
        to_undo = {"undo": {"url": reverse("sessions:undo-ends"), "values": {"ids": undo}}} if undo else {}
        return trigger_client_event(HttpResponse(status=204), event, {"message": text, **to_undo})
    messages.success(request, text)
    return redirect("sessions:detail", session.pk) if session else redirect("sessions:list")


def refusal_of(act: Callable[[], object]) -> str:
    """Carry out an act; return why it was refused, "" once it is done."""
    try:
        act()
    except RejectedError as error:
        return " ".join(error.errors.values())
    return ""


def chosen_span(request: HttpRequest) -> timedelta:
    """Return the length of time that was chosen, in whole minutes; zero for what is none."""
    minutes = request.POST.get("minutes", "")
    return timedelta(minutes=int(minutes) if minutes.isdecimal() and len(minutes) < 7 else 0)
