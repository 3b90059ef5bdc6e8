"""The page "From a file": says what a file would make, fills the wizard in, or makes all of it."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from accounts.forms import FileOrTextForm
from accounts.requests import UserRequest, signed_in_form
from pages.launch import steps
from pages.launch.advice import parts_of
from pages.launch.array_form.forms import WizardForm
from pages.launch.array_form.initial import of_outcome
from pages.launch.offer import LaunchOffer
from pages.launch.views import wizard_page
from specs import services
from specs.formats import reading
from specs.formats.reading import SpecFile
from specs.launch_templates.bodies import LAUNCHED
from specs.problems import SpecError
from specs.services import SpecOutcome
from specs.writing import spec_text


class SpecFileForm(FileOrTextForm):
    """A spec file, script or task file, and the image for one that names none."""

    file = forms.FileField(required=False, label=gettext_lazy("File"))
    image = forms.CharField(required=False, max_length=255)


@signed_in_form
def from_file(request: UserRequest) -> HttpResponse:
    """Take a file; with "fill" the wizard shows what it asks for, with "make" all of it is made."""
    form = SpecFileForm(request.POST, request.FILES) if request.method == "POST" else SpecFileForm()
    context: dict[str, Any] = {"form": form}
    if form.is_bound and form.is_valid():
        try:
            file = reading.read(request.user, form.cleaned_data["text"], form.cleaned_data["image"])
            outcomes = services.carry_out(request.user, file.documents, is_dry="make" not in request.POST)
        except SpecError as error:
            context["problems"] = error.problems
        else:
            if "make" in request.POST:
                return _made(request, outcomes)
            may_fill = _is_one_launch(outcomes)
            if may_fill and "fill" in request.POST:
                offer = LaunchOffer(request.user)
                filled = WizardForm(request.user, offer=offer, initial=of_outcome(outcomes[0]))
                return wizard_page(request, filled, _("Filled in from a file."), steps.STEPS[-1])
            context |= {**_outlook(file, outcomes), "may_fill": may_fill}
            context["may_save"] = len(outcomes) == 1 and outcomes[0].document.kind in LAUNCHED
    status = 422 if form.errors or "problems" in context else 200
    return render(request, "launch/from_file.html", context, status=status)


def _is_one_launch(outcomes: list[SpecOutcome]) -> bool:
    """Return whether there is one document, which is for sessions and says nothing that the wizard does not ask for."""
    [first, *others] = outcomes
    is_launch = first.document.kind in ("session", "cluster", "array") and not others
    return is_launch and first.launched_as is not None and first.launched_as.priority is None


def _outlook(file: SpecFile, outcomes: list[SpecOutcome]) -> dict[str, Any]:
    """Return what the page says of a file that is valid."""
    rows = [
        {"outcome": each, "parts": parts_of(each.estimate.advice.sessions) if each.estimate else []}
        for each in outcomes
    ]
    spec = spec_text((each.kind, each.fields) for each in file.documents) if file.is_translated else ""
    return {"rows": rows, "options": file.options, "spec": spec}


def _made(request: UserRequest, outcomes: list[SpecOutcome]) -> HttpResponse:
    count = sum(len(each.ids) for each in outcomes)
    text = ngettext("%(count)d thing was made.", "%(count)d things were made.", count)
    messages.success(request, text % {"count": count})
    kinds = {each.document.kind for each in outcomes}
    lists = {"deployment": "deployments:list", "folder": "folders:list", "template": "sessions:templates"}
    lists |= {"array": "arrays:list"}
    return redirect(lists.get(next(iter(kinds)), "sessions:list") if len(kinds) == 1 else "sessions:list")
