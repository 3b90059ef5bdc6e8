"""The dialogs that end sessions, tell what is lost with them, and undo it."""

import re
from typing import Final

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from pages.session.dialogs import done, render_dialog
from pages.session.losses import losses_of
from pages.session.queries import visible_session
from sessions.ending import services as ending
from sessions.launching import services
from sessions.lifecycle import LIVE
from sessions.models import SESSION_ID, Session, SessionQuerySet

BULK_LIMIT: Final = 200


@signed_in_form
def terminate(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for confirmation, or end one session."""
    visible_session(request, session_id)
    return _terminate(request, Session.objects.filter(pk=session_id))


@signed_in_form
def terminate_many(request: UserRequest) -> HttpResponse:
    """Ask for confirmation, or end the selected sessions; ids that the user may not see are ignored."""
    ids = (request.POST if request.method == "POST" else request.GET).getlist("ids")
    return _terminate(request, Session.objects.filter(pk__in=_session_ids(ids)))


@signed_in_act
def undo_ends(request: UserRequest) -> HttpResponse:
    """Let the sessions go on whose end this user has asked for; other ids are ignored."""
    sessions = ending.undo(_session_ids(request.POST.getlist("ids")), actor=request.user)
    return done(request, ending.undone_text(sessions), "sessions:ended")


@signed_in_page
def losses(request: UserRequest, session_id: str) -> HttpResponse:
    """Show what runs in the session, and how much its home folder holds: a part of the dialog."""
    session = visible_session(request, session_id)
    return render(request, "sessions/_losses.html", {"session": session, "losses": losses_of(session)})


def _terminate(request: UserRequest, chosen: SessionQuerySet) -> HttpResponse:
    visible = (
        chosen.visible_to(request.user).with_members().select_related("replica__deployment").prefetch_related("mounts")
    )
    sessions = [session for session in visible if session.whole_status in LIVE]
    if request.method != "POST":
        context = {"sessions": sessions, "action": request.path, "seconds": ending.UNDO_SPAN.seconds}
        return render_dialog(request, "terminate", context)
    if not request.htmx:  # whose page has no part that could undo it
        for session in sessions:
            services.terminate(session, actor=request.user)
        return done(request, _ending(sessions), "sessions:ended")
    held = [session for session in sessions if ending.request_end(session, actor=request.user)]
    text = _held(held) if held else _ending(sessions)
    return done(request, text, "sessions:ended", undo=[session.pk for session in held])


def _session_ids(given: list[str]) -> list[str]:
    return [session_id for session_id in given[:BULK_LIMIT] if re.fullmatch(SESSION_ID, session_id)]


def _held(sessions: list[Session]) -> str:
    values = {"seconds": ending.UNDO_SPAN.seconds, "count": len(sessions), "name": sessions[0].full_name}
    text = ngettext(
        "%(name)s ends in %(seconds)s seconds.", "%(count)s sessions end in %(seconds)s seconds.", len(sessions)
    )
    return text % values


def _ending(sessions: list[Session]) -> str:
    if not sessions:
        return _("Nothing to end: these sessions have already ended.")
    if len(sessions) == 1:
        return _("Ending %(name)s.") % {"name": sessions[0].name}
    text = ngettext("Ending %(count)s session.", "Ending %(count)s sessions.", len(sessions))
    return text % {"count": len(sessions)}
