"""The dialog that gives a running session other amounts of CPU, memory and its GPU."""

from typing import Any

from django import forms
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import done, render_dialog
from pages.session.queries import operable_session
from resources.amounts.fields import FgpuFormField, SizeFormField
from sessions.errors import GENERAL, RejectedError
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.services import SessionSize


class ResizeForm(forms.Form):
    """What a session is to hold; `save` asks for it and shows the messages of a refusal at the fields."""

    cpu = forms.IntegerField(error_messages={"invalid": gettext_lazy("Write a whole number of cores.")})
    memory = SizeFormField()
    fgpu = FgpuFormField(required=False)

    def __init__(self, session: Session, data: Any = None) -> None:
        super().__init__(data, initial={"cpu": session.cpu, "memory": session.memory, "fgpu": session.fgpu})
        self.session = session
        if resizing.gpu_refusal(session):
            del self.fields["fgpu"]

    def save(self, request: UserRequest) -> bool:
        """Resize the session; return whether that was accepted."""
        amounts = {"fgpu": self.session.fgpu} | self.cleaned_data
        if amounts["fgpu"] is None:
            amounts["fgpu"] = 0
        try:
            resizing.resize(self.session, SessionSize(**amounts), actor=request.user)
        except RejectedError as rejected:
            for name, message in rejected.errors.items():
                self.add_error(None if name == GENERAL or name not in self.fields else name, message)
        return not self.errors


@signed_in_form
def resize(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for the amounts, or have them changed; refused ones are shown again with the reasons, as 422."""
    session = operable_session(request, session_id)
    refusal = resizing.refusal(session)
    form = ResizeForm(session, request.POST if request.method == "POST" else None)
    if request.method == "POST" and not refusal and form.is_valid() and form.save(request):
        text = _("Resizing %(name)s.") % {"name": session.name}
        return done(request, text, "sessions:resized", session)
    context = {
        "session": session,
        "form": form,
        "refusal": refusal,
        "gpu_refusal": resizing.gpu_refusal(session) if session.fgpu else "",
    }
    return render_dialog(request, "resize", context, is_refused=request.method == "POST")
