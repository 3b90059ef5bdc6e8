"""The pages of launch templates."""

from difflib import unified_diff
from typing import Any, Final

from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.text import slugify
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from pages.launch import steps
from pages.launch.array_form.forms import WizardForm
from pages.launch.array_form.initial import of_outcome
from pages.launch.gallery import origins
from pages.launch.gallery.forms import FillForm, TemplateForm
from pages.launch.offer import LaunchOffer
from pages.launch.views import wizard_page
from restapi.plain_yaml import PlainYamlError, documents
from specs.documents import KIND
from specs.launch_templates import services
from specs.models import LaunchTemplate, TemplateVersion
from specs.problems import messages as problem_texts
from specs.services import SpecOutcome

MAX_SHOWN: Final = 200


@signed_in_page
def gallery(request: UserRequest) -> HttpResponse:
    """Show the templates that the user may launch, or those in whose texts the search is."""
    query = request.GET.get("q", "").replace("\0", "").strip()[:100]
    visible = LaunchTemplate.objects.visible_to(request.user)
    found = visible.filter(Q(name__icontains=query) | Q(description__icontains=query)) if query else visible
    shown = found.select_related("owner", "project")[:MAX_SHOWN]
    return render(request, "launch/gallery/list.html", {"templates": shown, "query": query})


@signed_in_form
def template(request: UserRequest, template_id: str) -> HttpResponse:
    """Ask for the parameters of a template; then launch it, or fill the wizard in."""
    shown = _visible(request, template_id)
    version = _chosen(shown, request.POST.get("version", ""))
    form = FillForm(request.user, version, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        in_wizard = "wizard" in request.POST and shown.kind != "deployment"
        outcome = form.launch(is_dry=in_wizard)
        if outcome and not in_wizard:
            return _launched(request, outcome, outcome.document.name or shown.name)
        if outcome and outcome.launched_as and outcome.launched_as.priority is not None:
            form.add_error(None, _("It has a priority, which the wizard does not ask for: launch it here."))
        elif outcome and outcome.launched_as:
            initial = of_outcome(outcome) | {"from_template": f"{shown.pk}:{version.number}"}
            filled = WizardForm(request.user, offer=LaunchOffer(request.user), initial=initial)
            return wizard_page(request, filled, _("Filled in from a template."), steps.STEPS[-1])
    context = {
        **{"template": shown, "version": version, "form": form, "may_edit": _may_edit(request, shown)},
        "link": request.build_absolute_uri(f"{reverse('launch')}?template={shown.pk}"),
    }
    return render(request, "launch/gallery/template.html", context, status=422 if form.errors else 200)


@signed_in_form
def edit(request: UserRequest, template_id: str = "") -> HttpResponse:
    """Save a template, or its next version; a new one begins with what a session, file or form asks for."""
    target = _editable(request, template_id) if template_id else None
    if {"save", "ask_now"} & request.POST.keys():
        form = TemplateForm(request.user, request.POST, target=target)
        if form.is_valid() and "ask_now" in request.POST:
            form = _asking(request, form, target)
        elif form.is_valid() and (saved := form.save()):
            messages.success(request, _("Saved %(name)s.") % {"name": saved.name})
            return redirect("sessions:template", saved.pk)
    elif target:
        form = TemplateForm(request.user, initial=TemplateForm.shown_of(target), target=target)
    else:
        if "form_key" in request.POST:
            filled = WizardForm(request.user, request.POST)
            if not filled.is_valid():
                return wizard_page(request, filled, "", steps.first_with(filled.messages()))
            kind, fields = filled.document()
        else:
            kind, fields = origins.begun(request)
        name = str(fields.get("name", ""))
        if "session" in request.GET:  # each launch has a name and priority of its own
            fields = {key: value for key, value in fields.items() if key not in ("name", "priority")}
        launch, parameters = origins.asked_for({KIND: kind, **fields})
        form = TemplateForm(request.user, initial=TemplateForm.shown(name, launch, parameters))
    context = {"form": form, "template": target, "offered": _offered(form)}
    return render(request, "launch/gallery/edit.html", context, status=422 if form.errors else 200)


@signed_in_form
def versions(request: UserRequest, template_id: str) -> HttpResponse:
    """List the versions of a template, with what changed between two; POST has another be launched."""
    shown = _visible(request, template_id)
    if request.method == "POST":
        shown = _editable(request, template_id)
        version = _numbered(shown, request.POST.get("version", ""))
        try:
            services.make_current(shown, version, actor=request.user)
        except ValidationError as error:
            messages.error(request, " ".join(text for _place, text in problem_texts(error.detail)))
        else:
            text = _("Version %(number)s of %(name)s is launched from now on.")
            messages.success(request, text % {"number": version.number, "name": shown.name})
        return redirect("sessions:template-versions", shown.pk)
    listed = list(shown.versions.defer("text").select_related("author"))
    numbers = [each.number for each in listed]
    new = _number(request.GET.get("new", ""), shown.version if shown.version in numbers else numbers[0])
    old = _number(request.GET.get("old", ""), next((each for each in numbers if each < new), new))
    pair = [_numbered(shown, str(number)) for number in (old, new)]
    context: dict[str, Any] = {"template": shown, "versions": listed, "old": old, "new": new, "text": pair[1].text}
    context |= {"changes": _changes(*pair), "may_edit": _may_edit(request, shown)}
    return render(request, "launch/gallery/versions.html", context)


@signed_in_act
def delete(request: UserRequest, template_id: str) -> HttpResponse:
    """Delete a template."""
    gone = _editable(request, template_id)
    services.delete(gone, actor=request.user)
    messages.success(request, _("Deleted %(name)s. What was launched from it goes on.") % {"name": gone.name})
    return redirect("sessions:templates")


@signed_in_page
def export(request: UserRequest, template_id: str) -> HttpResponse:
    """Send a template as a spec file."""
    sent = _visible(request, template_id)
    name = slugify(sent.name) or "template"
    headers = {"Content-Disposition": f'attachment; filename="{name}.yaml"'}
    return HttpResponse(sent.current.text, content_type="text/yaml; charset=utf-8", headers=headers)


def _visible(request: UserRequest, template_id: str) -> LaunchTemplate:
    found = LaunchTemplate.objects.visible_to(request.user).select_related("owner", "project")
    return get_object_or_404(found, pk=template_id)


def _editable(request: UserRequest, template_id: str) -> LaunchTemplate:
    return get_object_or_404(LaunchTemplate.objects.editable_by(request.user), pk=template_id)


def _may_edit(request: UserRequest, shown: LaunchTemplate) -> bool:
    return LaunchTemplate.objects.editable_by(request.user).filter(pk=shown.pk).exists()


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default


def _numbered(shown: LaunchTemplate, text: str) -> TemplateVersion:
    return get_object_or_404(shown.versions.select_related("template"), number=_number(text, 0))


def _chosen(shown: LaunchTemplate, text: str) -> TemplateVersion:
    """Return the version that the form was of, where it is still there, else the current one."""
    return shown.versions.select_related("template").filter(number=_number(text, 0)).first() or shown.current


def _changes(old: TemplateVersion, new: TemplateVersion) -> list[tuple[str, str]]:
    """Return the lines that differ, each with "+", "-" or " " before it."""
    found = list(unified_diff(old.text.splitlines(), new.text.splitlines(), n=2, lineterm=""))[2:]
    return [(line[:1], line[1:]) for line in found if not line.startswith("@@")]


def _asking(request: UserRequest, form: TemplateForm, target: LaunchTemplate | None) -> TemplateForm:
    """Return the form in which what was ticked is asked for each time."""
    said = form.cleaned_data
    launch = said["launch"].value
    names = [name for name in origins.offered(launch) if name in request.POST.getlist("ask")]
    changed, asked = origins.with_parameters(launch, names)
    known = {each.get("name") for each in said["parameters"].value if isinstance(each, dict)}
    parameters = said["parameters"].value + [each for each in asked if each["name"] not in known]
    shown = TemplateForm.shown(said["name"], changed, parameters)
    typed = {name: said[name] for name in ("description", "icon", "color", "holder", "version")}
    return TemplateForm(request.user, initial=shown | typed, target=target)


def _offered(form: TemplateForm) -> list[str]:
    """Return what the page offers to ask for each time."""
    try:
        found = documents(str(form["launch"].value() or ""))
    except PlainYamlError:
        return []
    return origins.offered(found[0].value) if found and isinstance(found[0].value, dict) else []


def _launched(request: UserRequest, outcome: SpecOutcome, name: str) -> HttpResponse:
    """Say what was launched, on its page or in the list."""
    messages.success(request, _("Launched %(name)s.") % {"name": name})
    if outcome.document.kind == "deployment":
        return redirect("deployments:detail", outcome.ids[0])
    if outcome.document.kind == "array":
        return redirect("arrays:detail", outcome.ids[0])
    return redirect("sessions:detail", outcome.ids[0]) if len(outcome.ids) == 1 else redirect("sessions:list")
