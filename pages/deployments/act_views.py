"""What is done with a deployment by a button of its page: each shows the page again, with the reason of a refusal."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.requests import UserRequest, signed_in_act, signed_in_form
from deployments import services
from deployments.access import tokens
from deployments.models import Revision
from pages.deployments.queries import operable_deployment
from pages.deployments.tabs import DeploymentTab, to_tab
from sessions.errors import RejectedError
from translation.english import from_english


@signed_in_act
def activate(request: UserRequest, deployment_id: str, number: int) -> HttpResponse:
    """Have the replicas replaced by such as run this revision."""
    deployment = operable_deployment(request, deployment_id)
    revision = get_object_or_404(Revision.objects.select_related("image"), deployment=deployment, number=number)
    text = _("Revision %(number)s is being rolled out.") % {"number": number}
    return done(request, deployment_id, text, lambda: services.activate(deployment, revision, actor=request.user))


@signed_in_act
def rollback(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Return to the revision that was current before."""
    deployment = operable_deployment(request, deployment_id)
    text = _("The revision before is being rolled out again.")
    return done(request, deployment_id, text, lambda: services.abort_rollout(deployment, actor=request.user))


@signed_in_act
def promote(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Pass the running step of a rollout by steps now, or all that are left."""
    deployment, to_all = operable_deployment(request, deployment_id), "to_all" in request.POST
    text = _("The new revision gets all requests.") if to_all else _("The next step of the rollout begins.")
    return done(request, deployment_id, text, lambda: services.promote(deployment, actor=request.user, to_all=to_all))


@signed_in_act
def restart(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Have all replicas replaced."""
    deployment = operable_deployment(request, deployment_id)
    text = _("The replicas are being replaced, one after the other.")
    return done(request, deployment_id, text, lambda: services.restart(deployment, actor=request.user))


@signed_in_act
def scale(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Have another number of replicas serve."""
    deployment = operable_deployment(request, deployment_id)
    given = request.POST.get("replicas", "")
    number = int(given) if given.isascii() and given.isdecimal() and len(given) < 5 else -1
    text = ngettext("%(count)s replica is wanted now.", "%(count)s replicas are wanted now.", number)
    return done(
        request,
        deployment_id,
        text % {"count": number},
        lambda: services.set_replicas(deployment, number, actor=request.user),
    )


@signed_in_form
def end(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Ask for confirmation, or end the deployment."""
    deployment = operable_deployment(request, deployment_id)
    if request.method != "POST":
        return render(request, "deployments/end.html", {"deployment": deployment})
    text = _("%(name)s has ended.") % {"name": deployment.name}
    return done(request, deployment_id, text, lambda: services.end(deployment, actor=request.user))


@signed_in_act
def revoke_token(request: UserRequest, deployment_id: str, token_id: int) -> HttpResponse:
    """Revoke a token at once."""
    deployment = operable_deployment(request, deployment_id)
    token = get_object_or_404(deployment.tokens.select_related("deployment__owner"), pk=token_id)
    text = _("The token %(name)s is revoked.") % {"name": token.name}
    return done(
        request, deployment_id, text, lambda: tokens.revoke_token(token, actor=request.user), DeploymentTab.TOKENS
    )


def done(
    request: UserRequest,
    deployment_id: str,
    text: str,
    act: Callable[[], object],
    tab: DeploymentTab = DeploymentTab.OVERVIEW,
) -> HttpResponse:
    """Carry out an act, say what was done or why not, and show the tab again."""
    try:
        act()
        messages.success(request, text)
    except RejectedError as error:
        messages.error(request, " ".join(from_english(each) for each in error.errors.values()))
    return to_tab(deployment_id, tab)
