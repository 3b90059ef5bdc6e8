"""The dialog that puts off the end of an idle session."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import chosen_span, done, render_dialog
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
        by = chosen_span(request)
        try:
            idle.snooze(session.pk, by, actor=request.user)
        except RejectedError as rejected:
            error = " ".join(rejected.errors.values())
        else:
            text = _("%(name)s goes on idle for %(span)s longer.") % {"name": session.name, "span": span_text(by)}
            return done(request, text, "sessions:extended", session)
    return _ask(request, session, error)


def _ask(request: UserRequest, session: Session, error: str) -> HttpResponse:
    """Show the lengths to choose from; a refused one is answered with 422."""
    notice = idle.notice_of(session)
    context = {
        "session": session,
        "notice": notice,
        "offers": [(int(span.total_seconds()) // 60, span) for span in idle.snooze_offers(notice, request.user)],
        "error": error,
    }
    return render_dialog(request, "snooze", context, is_refused=bool(error))
