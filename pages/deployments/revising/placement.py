"""Whether there is room for what a form or a button of a deployment launches: a sentence that is read before."""

import re
from collections.abc import Callable

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.debug import sensitive_post_parameters

from accounts.requests import UserRequest, signed_in_act, signed_in_page
from deployments import previews
from deployments.models import Revision
from deployments.previews import LaunchPreview
from pages.deployments.forms import DeploymentForm, RevisionForm
from pages.deployments.queries import may_revise, operable_deployment, visible_deployment
from scheduler.advice.rollout_placement import placement_of
from sessions.errors import RejectedError


@signed_in_act
@sensitive_post_parameters()
def of_creation(request: UserRequest) -> HttpResponse:
    """Say it of the deployment that a form describes; nothing while the form is not valid."""
    form = DeploymentForm(request.user, request.POST)
    if not form.is_valid():
        return _shown(request, None)
    return _shown(request, lambda: previews.of_creation(request.user, form.deployment_request()))


@signed_in_act
@sensitive_post_parameters()
def of_revision(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Say it of the revision that a form describes; nothing while the form is not valid."""
    deployment = visible_deployment(request, deployment_id)
    if not may_revise(request.user, deployment) or deployment.ended_at:
        raise Http404
    form = RevisionForm(deployment.owner, request.POST, current=deployment.revision)
    if not form.is_valid():
        return _shown(request, None)
    return _shown(request, lambda: previews.of_revision(deployment, form.revision_request()))


@signed_in_page
def of_change(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Say it of a revision to activate, by its number, or of another number of replicas."""
    deployment = operable_deployment(request, deployment_id)
    if "revision" in request.GET:
        revisions = Revision.objects.select_related("image")
        revision = get_object_or_404(revisions, deployment=deployment, number=_number(request.GET["revision"]))
        return _shown(request, lambda: previews.of_activation(deployment, revision))
    replicas = _number(request.GET.get("replicas", ""))
    return _shown(request, lambda: previews.of_scale(deployment, replicas), replicas=replicas)


def _number(text: str) -> int:
    """Return the number; one that nothing has for what is none."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


def _shown(request: UserRequest, preview: Callable[[], LaunchPreview] | None, **context: object) -> HttpResponse:
    try:
        context["placement"] = placement_of(preview()) if preview else None
    except RejectedError as error:
        context["refusals"] = list(error.errors.values())
    return render(request, "deployments/_placement.html", context)
