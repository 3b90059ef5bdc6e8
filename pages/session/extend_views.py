"""The dialogs that let a running session go on for longer, and put off the end of an idle one."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import chosen_span, done, refusal_of, render_dialog
from resources.amounts.units import span_text
from sessions.extensions import services as extensions
from sessions.idle import enforcement as idle
from sessions.models import Session


@signed_in_form
def extend(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask by how much, or let the session run longer; a refused length is answered with 422."""
    operable = Session.objects.operable_by(request.user)
    session = get_object_or_404(
        operable.select_related("owner__policy", "project__policy", "resource_group"), pk=session_id
    )
    error, by = "", chosen_span(request)
    if request.method == "POST":
        error = refusal_of(partial(extensions.extend, session.pk, by, actor=request.user))
        if not error:
            text = _("%(name)s runs %(span)s longer.") % {"name": session.name, "span": span_text(by)}
            return done(request, text, "sessions:extended", session)
    offered = extensions.offers(session, request.user)
    refusal = "" if offered else extensions.refusal(session, request.user)
    context = {"session": session, "offers": _in_minutes(offered), "refusal": refusal, "error": error}
    return render_dialog(request, "extend", context, is_refused=bool(error))


@signed_in_form
def snooze(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask by how much, or put off the end of the idle session; a refused length is answered with 422."""
    operable = Session.objects.operable_by(request.user)
    session = get_object_or_404(operable.select_related("idle_notice__rule"), pk=session_id)
    error, by = "", chosen_span(request)
    if request.method == "POST":
        error = refusal_of(partial(idle.snooze, session.pk, by, actor=request.user))
        if not error:
            text = _("%(name)s goes on idle for %(span)s longer.") % {"name": session.name, "span": span_text(by)}
            return done(request, text, "sessions:extended", session)
    notice = idle.notice_of(session)
    offered = _in_minutes(idle.snooze_offers(notice, request.user))
    context = {"session": session, "notice": notice, "offers": offered, "error": error}
    return render_dialog(request, "snooze", context, is_refused=bool(error))


def _in_minutes(spans: Iterable[timedelta]) -> list[tuple[int, timedelta]]:
    return [(int(span.total_seconds()) // 60, span) for span in spans]
