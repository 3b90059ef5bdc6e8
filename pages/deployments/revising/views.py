"""The pages that make a deployment, and a revision of one."""

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_form
from deployments import services
from pages.deployments.forms import DeploymentForm, RevisionForm, variants
from pages.deployments.queries import may_revise, visible_deployment
from pages.deployments.revising.drafts import Proposal, fill, proposal_of
from sessions.errors import RejectedError


@signed_in_form
def new(request: UserRequest) -> HttpResponse:
    """Show the form of a new deployment, or make it; a refused one is shown again with its messages, as 422."""
    form = DeploymentForm(request.user, request.POST if request.method == "POST" else None)
    proposal = None
    if not form.is_bound and "folder" in request.GET:
        proposal = proposal_of(request.user, request.GET["folder"], request.GET.get("path", ""))
        if proposal:
            form.initial["model_folder"] = request.GET["folder"]
        fill(form, proposal, request.GET.get("model", ""))
    if form.is_bound and form.is_valid():
        try:
            made = services.create(request.user, form.deployment_request())
            messages.success(request, _("%(name)s is being deployed.") % {"name": made.name})
            return redirect("deployments:detail", made.pk)
        except RejectedError as error:
            form.refuse(error)
    return _shown(request, form, proposal=proposal)


@signed_in_form
def new_revision(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Show the form of a revision with what the current one has, or make it and roll it out."""
    deployment = visible_deployment(request, deployment_id)
    if not may_revise(request.user, deployment) or deployment.ended_at:
        raise Http404
    data = request.POST if request.method == "POST" else None
    form = RevisionForm(deployment.owner, data, current=deployment.revision)
    if form.is_bound and form.is_valid():
        try:
            made = services.new_revision(deployment, form.revision_request(), actor=request.user)
            messages.success(request, _("Revision %(number)s is being rolled out.") % {"number": made.number})
            return redirect("deployments:detail", deployment.pk)
        except RejectedError as error:
            form.refuse(error)
    return _shown(request, form, deployment)


def _shown(
    request: UserRequest, form: RevisionForm, deployment: object = None, proposal: Proposal | None = None
) -> HttpResponse:
    context = {"form": form, "deployment": deployment, "variants": variants(), "proposal": proposal}
    return render(request, "deployments/form.html", context, status=422 if form.is_bound else 200)
