"""The dialog in which a waiting session asks for less, so that it starts now."""

from dataclasses import asdict
from typing import Any

from django import forms
from django.http import HttpResponse
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import done, refusal_of, render_dialog
from pages.session.queries import operable_session
from resources.amounts.fields import MAX_BIG_INTEGER, MAX_INTEGER
from scheduler.advice.own_sessions import advice_on
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from translation.english import from_english


class SizeForm(forms.Form):
    """A size, as the dialog proposes it: cores, bytes and milli-fGPU."""

    cpu = forms.IntegerField(min_value=1, max_value=MAX_INTEGER)
    memory = forms.IntegerField(min_value=1, max_value=MAX_BIG_INTEGER)
    fgpu = forms.IntegerField(min_value=0, max_value=MAX_INTEGER)


@signed_in_form
def ask_for_less(request: UserRequest, session_id: str) -> HttpResponse:
    """Propose sizes with which the session would start now, or have it ask for one of them."""
    session = operable_session(request, session_id)
    form, error = SizeForm(request.POST if request.method == "POST" else None), ""
    if form.is_bound:
        error = _asked(request, session, form)
        if not error:
            return done(request, _("%(name)s asks for less now.") % {"name": session.name}, "sessions:resized", session)
    context: dict[str, Any] = {"session": session, "choices": _choices(session), "error": error}
    return render_dialog(request, "less", context, is_refused=bool(error))


def _asked(request: UserRequest, session: Session, form: SizeForm) -> str:
    if session.status != Status.PENDING:
        return _("The session does not wait any more.")
    if not form.is_valid():
        return _("Choose one of these sizes.")
    is_apart = session.cluster is not None and session.cluster.main_differs  # what is proposed is for the others
    asking = session.members.get(rank=1) if is_apart else session
    return refusal_of(lambda: resizing.resize(asking, SessionSize(**form.cleaned_data), actor=request.user))


def _choices(session: Session) -> list[tuple[dict[str, int], str]]:
    """Return each size, as the fields of the form, with its words."""
    advice = advice_on([session]).get(session.pk)
    sizes = [
        SessionSize(cpu=each.cpu, memory=each.memory_bytes, fgpu=each.fgpu_milli)
        for each in (advice.smaller if advice else ())
    ]
    return [(asdict(size), from_english(str(size))) for size in sizes]
