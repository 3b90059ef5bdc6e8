"""The launch wizard, and its parts that change: what is said of the form as it is filled in, images being built."""

import secrets
from contextlib import suppress
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from accounts.models import User
from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from imports.models import Import
from pages.launch import beginnings, cards, drafts, queries, steps
from pages.launch.advice import button_of, choices_of, parts_of, rooms_of, start_of
from pages.launch.array_form import initial as array_initial
from pages.launch.array_form.forms import WizardForm
from pages.launch.links import link_problems, link_to
from pages.launch.offer import LaunchOffer
from pages.launch.steps import WizardStep
from resources.accelerators.kinds import named_for
from resources.images import builds
from scheduler.advice.estimate import estimate
from sessions.errors import RejectedError
from sessions.lifecycle import Kind
from sessions.models import Session
from specs import template_launches
from specs.models import LaunchTemplate
from translation.english import from_english

TEMPLATES_SHOWN: Final = 6


@signed_in_form
def launch(request: UserRequest, slug: str = "environment") -> HttpResponse:
    """Show a page of the wizard, or launch the sessions of its form."""
    if slug not in steps.BY_SLUG:
        raise Http404
    offer = LaunchOffer(request.user)
    if request.method != "POST":
        return wizard_page(request, *_begun(request, offer), steps.BY_SLUG[slug])
    with transaction.atomic():  # the launch and that its form is launched
        return _launch(request, offer)


def _launch(request: UserRequest, offer: LaunchOffer) -> HttpResponse:
    """Launch the form, unless it was launched as it is."""
    if place := drafts.launched_to(request.user, request.POST):
        messages.info(request, _("This form was launched already. To launch the same again, open Launch anew."))
        return redirect(place)
    form = WizardForm(request.user, request.POST, offer=offer)
    if form.is_valid() and (unread := _unread(form, request.POST.get("unread", ""))):
        drafts.save(request.user, request.POST)
        messages.warning(request, " ".join([_("Not launched yet: look at it once more."), *unread]))
        return redirect("sessions:launch-step", "review")
    if form.is_valid() and form.array:
        if array := form.submit_array():
            template_launches.record_named(request.user, form.cleaned_data["from_template"], [])
            place = reverse("arrays:detail", args=[array.pk])
            drafts.discard(request.user, request.POST, place)
            text = ngettext(
                "Started %(name)s with %(count)s task.", "Started %(name)s with %(count)s tasks.", array.size
            )
            messages.success(request, text % {"name": array.name, "count": array.size})
            return redirect(place)
    elif form.is_valid() and (started := form.save()):
        template_launches.record_named(request.user, form.cleaned_data["from_template"], started)
        place = reverse("sessions:list") + _launcher_fragment(started)
        drafts.discard(request.user, request.POST, place)
        messages.success(request, _launched(started))
        return redirect(place)
    drafts.save(request.user, request.POST)
    return wizard_page(request, form, "", steps.first_with(form.messages()))


@require_POST
@login_required
def start_over(request: UserRequest) -> HttpResponse:
    """Forget what was filled in, and begin with what everybody begins with."""
    drafts.discard(request.user, request.POST)
    return redirect(f"{reverse('sessions:launch')}?fresh=1")


@signed_in_page
def image_builds(request: UserRequest) -> HttpResponse:
    """Show how far the images are that cannot be used yet: the part of the launch page that changes."""
    return render(request, "launch/_image_builds.html", _build_context(request.user))


@signed_in_act
def advice(request: UserRequest) -> HttpResponse:
    """Keep the form as it is, and render when its sessions would start, what is wrong, and the review of it."""
    drafts.save(request.user, request.POST)
    form = WizardForm(request.user, request.POST)
    found, order = None, form.order if form.is_valid() else None
    if order:
        try:
            found = estimate(request.user, order)
        except RejectedError as refusal:
            form.show(refusal.errors)
    group = form.cleaned_data.get("resource_group")
    device = group.accelerator_name if group else ""
    problems = {
        name: [named_for(device, from_english(text)) for text in texts] for name, texts in form.messages().items()
    }
    first = next(iter(problems), "")
    context: dict[str, Any] = {
        "form": form,
        "asked": form.cleaned_data,
        "problems": problems,
        "first_problem": problems[first][0] if first else "",
        "first_problem_page": steps.first_with([first]).slug,
        "button": _("Launch"),
        "link": request.build_absolute_uri(link_to(form)),
    }
    if order and found:
        sessions = found.advice.sessions
        context |= {"parts": parts_of(sessions), "choices": choices_of(found, order), "button": button_of(sessions)}
        context["rooms"] = rooms_of(found)
    if form.array:
        context["button"] = start_of(len(form.array.space.tasks))
    return render(request, "launch/_checked.html", context)


def _unread(form: WizardForm, kinds: str) -> list[str]:
    """Return what is to be read before a valid form is launched; `kinds` of it ("queue", "folders") were not shown."""
    found = []
    if "queue" in kinds:
        with suppress(RejectedError):  # the submission shows it
            order = form.order
            if order is None or any(each.starts != "now" for each in estimate(form.owner, order).advice.sessions):
                found.append(_("It would wait; below stands until when, and why."))
    if "folders" in kinds and not form.cleaned_data["mounts"] and not form.folders.always_mounted:
        found.append(_("No data folder is mounted."))
    return found


def _begun(request: UserRequest, offer: LaunchOffer) -> tuple[WizardForm, str]:
    """Return the form as the user left it, else as a link or the last launch says; and a sentence on what it shows."""
    link = beginnings.link_of(request.GET)
    if draft := drafts.find(request.user, link):
        initial = WizardForm.values_of(draft) | {"draft_version": drafts.version_of(draft)}
        text = _("You left off here.")
    elif link:
        initial = array_initial.from_link(offer, request.GET)
        text = _("Filled in by a link. Nothing is launched before you say so.") if initial else ""
    else:
        initial = beginnings.from_last_launch(offer)
        text = _("Filled in as in your last launch.") if initial else ""
    form = WizardForm(request.user, offer=offer, initial=initial)
    form.link_problems = link_problems(offer, request.GET)
    return form, text


def wizard_page(request: UserRequest, form: WizardForm, notice: str, step: WizardStep) -> HttpResponse:
    """Show a page of the wizard with the form, and a sentence on what it shows."""
    wrong = form.messages() if form.is_bound else {}
    facts = queries.launch_facts(form.offer)
    previous, following = steps.beside(step)
    context = {
        "form": form,
        "environment_cards": cards.environment_cards(form),
        "preset_cards": cards.preset_cards(form, facts),
        "gpu_models": cards.gpu_model_options(form, queries.gpu_models(form.offer.groups)),
        "step": step,
        "previous": previous,
        "next": following,
        "steps": [{"step": each, "has_problem": any(each.shows(name) for name in wrong)} for each in steps.STEPS],
        "notice": notice,
        "chosen_import": _chosen_import(form),
        "facts": facts,
        "source": request.POST.get("source", "") if form.is_bound else beginnings.link_of(request.GET),
        "form_key": secrets.token_hex(8),
        "disabled_images": queries.disabled_images(),
        "templates": LaunchTemplate.objects.visible_to(request.user).select_related("owner", "project")[
            :TEMPLATES_SHOWN
        ],
        **_build_context(request.user),
    }
    return render(request, "launch/launch.html", context, status=422 if form.is_bound else 200)


def _chosen_import(form: WizardForm) -> Import | None:
    """Return the import with which the form launches, or would if it were ticked again."""
    chosen = str(form["from_import"].value() or "")
    return form.offer.imports.filter(pk=chosen).select_related("folder").first() if chosen.isalnum() else None


def _launcher_fragment(sessions: list[Session]) -> str:
    """Return the URL fragment that opens the app launcher of the first of these sessions that runs."""
    ids = [session.pk for session in sessions if session.kind == Kind.INTERACTIVE]
    return f"#launched={','.join(ids)}" if ids else ""


def _launched(sessions: list[Session]) -> str:
    if len(sessions) == 1:
        return _("Launched %(name)s.") % {"name": sessions[0].name}
    text = ngettext("Launched %(count)s session.", "Launched %(count)s sessions.", len(sessions))
    return text % {"count": len(sessions)}


def _build_context(user: User) -> dict[str, Any]:
    """Return the builds to show: what cannot be launched yet, and to superadmins also what is only outdated."""
    shown = [status for status in builds.statuses() if user.is_superuser or not status.is_usable]
    return {"builds": shown, "is_building": any(status.is_active for status in shown)}
