"""The dialog that gives a session another name."""

from functools import partial

from django.http import HttpResponse
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import done, refusal_of, render_dialog
from pages.session.queries import operable_session
from sessions.launching import services, validation


@signed_in_form
def rename(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for the name, or take it; a refused one is shown again with the reason, as 422."""
    session, error, name = operable_session(request, session_id), "", ""
    if request.method == "POST":
        name = request.POST.get("name", "").strip()
        error = refusal_of(partial(services.rename, session, name, actor=request.user))
        if not error:
            text = _("It is called %(name)s now.") % {"name": name}
            return done(request, text, "sessions:renamed", session)
    context = {"session": session, "error": error, "name": name or session.name, "longest": validation.MAX_NAME_LENGTH}
    return render_dialog(request, "rename", context, is_refused=bool(error))
