"""The dialog that lets a running session go on for longer."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import chosen_span, done, render_dialog
from resources.amounts.units import span_text
from sessions.errors import RejectedError
from sessions.extensions import services as extensions
from sessions.models import Session


@signed_in_form
def extend(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask by how much, or let the session run longer."""
    visible = Session.objects.operable_by(request.user).select_related(
        "owner__policy", "project__policy", "resource_group"
    )
    session = get_object_or_404(visible, pk=session_id)
    error = ""
    if request.method == "POST":
        by = chosen_span(request)
        try:
            extensions.extend(session.pk, by, actor=request.user)
        except RejectedError as rejected:
            error = " ".join(rejected.errors.values())
        else:
            text = _("%(name)s runs %(span)s longer.") % {"name": session.name, "span": span_text(by)}
            return done(request, text, "sessions:extended", session)
    return _ask(request, session, error)


def _ask(request: UserRequest, session: Session, error: str) -> HttpResponse:
    """Show the lengths to choose from; a refused one is answered with 422."""
    offered = extensions.offers(session, request.user)
    context = {
        "session": session,
        "offers": [(int(span.total_seconds()) // 60, span) for span in offered],
        "refusal": "" if offered else extensions.refusal(session, request.user),
        "error": error,
    }
    return render_dialog(request, "extend", context, is_refused=bool(error))
