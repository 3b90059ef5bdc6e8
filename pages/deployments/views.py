"""The list of deployments, and the page of one with its settings and tokens."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_act, signed_in_page
from deployments import hosts as host_services
from deployments import services
from deployments.addresses import first_origin, origins
from deployments.replicas.progress import progress_of
from pages.deployments import examples
from pages.deployments.forms import HostsForm, SettingsForm
from pages.deployments.queries import (
    EVENTS_SHOWN,
    REVISIONS_SHOWN,
    last_hour,
    listed,
    may_operate,
    may_revise,
    named_deployment,
    operable_deployment,
    replicas_of,
    rollout_of,
    tokens_of,
    usage_of,
    visible_deployment,
)
from pages.deployments.scaling_forms import RuleForm, ScalingForm
from pages.deployments.scaling_words import rules_of, scaling_words
from pages.deployments.tabs import LABELS, OF_FORMS, DeploymentTab, tab_named, to_tab
from pages.deployments.token_forms import ChangedLimitsForm, DeploymentTokenForm
from sessions.errors import RejectedError

PAGE_SIZE = 25


@signed_in_page
def deployment_list(request: UserRequest) -> HttpResponse:
    """List the deployments that the user may see; return only the live part to htmx."""
    shows_ended = "ended" in request.GET
    page = Paginator(listed(request.user, ended=shows_ended), PAGE_SIZE).get_page(request.GET.get("page"))
    rows: list[Any] = list(page.object_list)
    for deployment in rows:
        deployment.url = first_origin(deployment)
        deployment.first_problem = deployment.problem.partition("\n")[0]
    template = "deployments/_list.html" if request.htmx else "deployments/list.html"
    return render(request, template, {"page": page, "rows": rows, "shows_ended": shows_ended})


@signed_in_page
def detail(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Show one deployment; return only the live part to htmx."""
    deployment = visible_deployment(request, deployment_id)
    if request.htmx:
        context = _context(request, deployment, tab_named(request.GET.get("tab")))
        return render(request, "deployments/_detail.html", context)
    return page_of(request, deployment)


@signed_in_act
def settings(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Change the settings; a refused form is shown again, as 422."""
    deployment = operable_deployment(request, deployment_id)
    form = SettingsForm.of(deployment, request.POST)

    def act() -> None:
        services.change(deployment, form.cleaned_data, actor=request.user)

    return saved(request, deployment, _("The settings are saved."), act, settings_form=form)


@signed_in_act
def hosts(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Have other host names lead to the deployment; a refused form is shown again, as 422."""
    deployment = named_deployment(request, deployment_id)
    form = HostsForm.of(deployment, request.POST)

    def act() -> None:
        host_services.set_hosts(deployment, form.cleaned_data["hosts"], actor=request.user)

    return saved(request, deployment, _("The host names are saved."), act, hosts_form=form)


def saved(request: UserRequest, deployment: Any, text: str, act: Callable[[], object], **own: Any) -> HttpResponse:
    """Carry out what a form asks, which is named as in the context, and show its tab; a refused form again, as 422."""
    [(name, form)] = own.items()
    if form.is_valid():
        try:
            act()
            messages.success(request, text)
            return to_tab(deployment.pk, OF_FORMS[name])
        except RejectedError as error:
            form.refuse(error)
    return page_of(request, deployment, **own)


def page_of(request: UserRequest, deployment: Any, **own: Any) -> HttpResponse:
    """Return the whole page, with a form that is refused, or the token that was just made."""
    usual = {
        "settings_form": SettingsForm.of(deployment),
        "token_form": DeploymentTokenForm(prefix="token"),
        "limits_form": ChangedLimitsForm.of(deployment),
        "scaling_form": ScalingForm.of(deployment),
        "rule_form": RuleForm(prefix="rule"),
        "hosts_form": HostsForm.of(deployment),
    }
    is_refused = any(name in own for name in usual)
    tab = next((OF_FORMS[name] for name in own), tab_named(request.GET.get("tab")))
    context = {**_context(request, deployment, tab), **usual, **own}
    return render(request, "deployments/detail.html", context, status=422 if is_refused else 200)


def _context(request: UserRequest, deployment: Any, tab: DeploymentTab) -> dict[str, Any]:
    url, *other_urls = origins(deployment) or [""]
    steps = progress_of(deployment)
    said = steps.words if steps else ""  # by the card of the rollout
    title, *lines = [line for line in deployment.problem.split("\n") if line != said] or [""]
    return {
        "deployment": deployment,
        "tab": tab,
        "tabs": LABELS,
        "url": url,
        "other_urls": other_urls,
        "may_operate": may_operate(request.user, deployment),
        "may_revise": may_revise(request.user, deployment),
        "curl_example": examples.curl(deployment, url),
        "python_example": examples.python(deployment, url),
        "problem_title": title,
        "problem_lines": lines,
        "steps": steps,
        "tokens": tokens_of(deployment),
        **_shown_on(tab, request, deployment),
    }


def _shown_on(tab: DeploymentTab, request: UserRequest, deployment: Any) -> dict[str, Any]:
    """Return what this tab alone shows: each is asked for again every few seconds."""
    if tab == DeploymentTab.TOKENS:
        return {"usage": usage_of(deployment)}
    rules = rules_of(deployment)
    scaling = {"rules": rules, "scaling_words": scaling_words(deployment, rules)}
    if tab != DeploymentTab.OVERVIEW:
        return scaling
    revisions = deployment.revisions.select_related("image", "variant", "created_by").prefetch_related("mounts")
    return {
        **scaling,
        "rollout": rollout_of(deployment),
        "hour": None if deployment.ended_at else last_hour(deployment),
        "replicas": replicas_of(deployment, request.user),
        "revisions": revisions[:REVISIONS_SHOWN],
        "events": deployment.events.select_related("actor")[:EVENTS_SHOWN],
    }
