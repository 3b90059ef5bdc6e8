"""The dialog that puts off the end of an idle session."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django_htmx.http import trigger_client_event

from accounts.requests import UserRequest, signed_in_form
from resources.amounts.units import span_text
from sessions.errors import RejectedError
from sessions.idle import enforcement as idle
from sessions.models import Session


@signed_in_form
def snooze(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask by how much, or put off the end of the idle session."""
    visible = Session.objects.operable_by(request.user).select_related("idle_notice__rule")
    session = get_object_or_404(visible, pk=session_id)
    error = ""
    if request.method == "POST":
        minutes = request.POST.get("minutes", "")
        by = timedelta(minutes=int(minutes) if minutes.isdecimal() and len(minutes) < 7 else 0)
        try:
            idle.snooze(session.pk, by, actor=request.user)
        except RejectedError as rejected:
            error = " ".join(rejected.errors.values())
        else:
            return _done(request, session, by)
    return _ask(request, session, error)


def _done(request: UserRequest, session: Session, by: timedelta) -> HttpResponse:
    text = _("%(name)s goes on idle for %(span)s longer.") % {"name": session.name, "span": span_text(by)}
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "sessions:extended", {"message": text})
    messages.success(request, text)
    return redirect("sessions:detail", session.pk)


def _ask(request: UserRequest, session: Session, error: str) -> HttpResponse:
    """Show the lengths to choose from; a refused one is answered with 422."""
    notice = idle.notice_of(session)
    context = {
        "session": session,
        "notice": notice,
        "offers": [(int(span.total_seconds()) // 60, span) for span in idle.snooze_offers(notice, request.user)],
        "error": error,
    }
    template = "sessions/_snooze.html" if request.htmx else "sessions/snooze.html"
    return render(request, template, context, status=422 if error else 200)
