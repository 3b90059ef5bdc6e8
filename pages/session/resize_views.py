"""The dialog that gives a running session other amounts of CPU, memory and its GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django import forms
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from accounts.requests import UserRequest, signed_in_form
from pages.session.dialogs import done, render_dialog
from pages.session.queries import operable_session
from resources.amounts.fields import FgpuFormField, SizeFormField
from resources.amounts.units import amount_text, exact_size_text, size_text
from sessions.errors import GENERAL, RejectedError
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from translation.english import from_english


class ResizeForm(forms.Form):
    """What a session, or each member of it, is to hold; `save` shows the messages of a refusal at the fields."""

    cpu = forms.IntegerField(error_messages={"invalid": gettext_lazy("Write a whole number of cores.")})
    memory = SizeFormField()
    fgpu = FgpuFormField(required=False)
    gpu_memory = SizeFormField(required=False)  # in place of the share, for a session that asked for it

    def __init__(self, members: Sequence[Session], actor: User, data: Any = None) -> None:
        session = members[0]
        memory = exact_size_text(session.memory)
        amounts = {"cpu": session.cpu, "memory": memory, "fgpu": session.fgpu}
        super().__init__(data, initial=amounts | {"gpu_memory": exact_size_text(session.gpu_memory)})
        self.members, self.session, self.actor = members, session, actor
        is_refused = bool(resizing.gpu_refusal(members))
        for name, is_other in (("fgpu", session.gpu_memory), ("gpu_memory", not session.gpu_memory)):
            if is_refused or is_other:
                del self.fields[name]

    def clean(self) -> dict[str, Any]:
        """Return the amounts; beside a text that is none, what cannot be had of the others shows as well."""
        if self.errors:
            found = resizing.problems(self.members, self._target(), self.actor)
            self._show({name: text for name, text in found.items() if name not in self.errors})
        return self.cleaned_data

    def clean_gpu_memory(self) -> int | None:
        """Return the milli-fGPU that the GPU memory is, as `fgpu`; nothing where it stays as it is."""
        asked = self.cleaned_data["gpu_memory"]
        if asked and asked != self.session.gpu_memory:
            try:
                self.cleaned_data["fgpu"] = resizing.share_for(self.session, asked)
            except RejectedError as rejected:
                raise forms.ValidationError(list(rejected.errors.values())) from None
        return None

    def save(self) -> bool:
        """Resize the session; return whether that was accepted."""
        try:
            resizing.resize(self.session, self._target(), actor=self.actor)
        except RejectedError as rejected:
            self._show(rejected.errors)
        return not self.errors

    def _target(self) -> SessionSize:
        """Return what was asked for, with what the session has in place of invalid fields."""
        if "fgpu" in self.cleaned_data:
            self.cleaned_data["fgpu"] = self.cleaned_data["fgpu"] or 0
        asked = {name: amount for name, amount in self.cleaned_data.items() if name != "gpu_memory"}
        return SessionSize(**asdict(SessionSize.of(self.session)) | asked)

    def _show(self, errors: Mapping[str, str]) -> None:
        for field, message in errors.items():
            name = "gpu_memory" if field == "fgpu" and self.session.gpu_memory else field
            self.add_error(None if name == GENERAL or name not in self.fields else name, message)


@signed_in_form
def resize(request: UserRequest, session_id: str) -> HttpResponse:
    """Ask for the amounts, or have them changed; refused ones are shown again with the reasons, as 422."""
    session = operable_session(request, session_id)
    members = resizing.members_of(session)
    refusal = resizing.refusal(members)
    form = ResizeForm(members, request.user, request.POST if request.method == "POST" and not refusal else None)
    if form.is_valid() and form.save():
        text = _("Resizing %(name)s.") % {"name": session.name}
        return done(request, text, "sessions:resized", session)
    context = {
        "session": session,
        "form": form,
        "refusal": refusal,
        **({} if refusal else _free(members, request.user)),
        "gpu_refusal": resizing.gpu_refusal(members) if session.fgpu else "",
    }
    return render_dialog(request, "resize", context, is_refused=request.method == "POST")


def _free(members: Sequence[Session], actor: User) -> dict[str, Any]:
    """Return how far each amount can go now, and in words how much of it is free."""
    before, most = asdict(SessionSize.of(members[0])), asdict(resizing.most_now(members, actor))
    hints = {}
    for name, bound in most.items():
        free, total = (from_english(amount_text(name, each)) for each in (bound - before[name], bound))
        text = _("Free now: %(free)s more, up to %(most)s in all.")
        if len(members) > 1:
            text = _("Free now: %(free)s more for each member, up to %(most)s.")
        hints[name] = text % {"free": free, "most": total} if bound > before[name] else _("No more is free now.")
    if memory := members[0].gpu_memory:  # as its share
        most["gpu_memory"] = memory * most["fgpu"] // max(1, before["fgpu"])
        is_more = most["fgpu"] > before["fgpu"]
        words = {"most": size_text(most["gpu_memory"])}
        hints["gpu_memory"] = _("Free now: up to %(most)s.") % words if is_more else _("No more is free now.")
    return {"most": most, "hints": hints, "growth_refusal": resizing.growth_refusal(members, actor)}
