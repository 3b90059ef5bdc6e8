"""The dialogs that park a session, resume it and return it to the queue."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import done, refusal_of, render_dialog
from sessions.models import Session
from sessions.parking import services as parking
from sessions.requeueing import requests as requeueing


class _Act(NamedTuple):
    """What a dialog does, and how that is announced."""

    do: Callable[..., None]
    refusal: Callable[[Session], str]
    title: str
    done: str


_ACTS: Final = {
    "park": _Act(parking.park, parking.refusal, gettext_noop("Park"), gettext_noop("Parking %(name)s.")),
    "resume": _Act(parking.resume, parking.resume_refusal, gettext_noop("Resume"), gettext_noop("Resuming %(name)s.")),
    "requeue": _Act(
        requeueing.requeue, requeueing.refusal, gettext_noop("Requeue"), gettext_noop("Requeueing %(name)s.")
    ),
}


@signed_in_form
def park(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or park the session."""
    return _show_or_do(request, session_id, "park")


@signed_in_form
def resume(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or let the session wait for its host."""
    return _show_or_do(request, session_id, "resume")


@signed_in_form
def requeue(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or have the batch session wait again and run from its beginning."""
    return _show_or_do(request, session_id, "requeue")


def _show_or_do(request: UserRequest, session_id: str, name: str) -> HttpResponse:
    operable = Session.objects.operable_by(request.user).select_related("owner__policy", "project__policy", "parked_on")
    session, act = get_object_or_404(operable, pk=session_id), _ACTS[name]
    error = ""
    if request.method == "POST":
        error = refusal_of(partial(act.do, session, actor=request.user))
        if not error:
            return done(request, _(act.done) % {"name": session.name}, "sessions:parked", session)
    context = {
        "session": session,
        "act": name,
        "title": _(act.title),
        "refusal": "" if error else act.refusal(session),
        "error": error,
        "longest": parking.longest(session),
    }
    return render_dialog(request, "park", context, is_refused=bool(error))
