"""Tokens of a deployment: made, and their limits changed, on its page."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from accounts.requests import UserRequest, signed_in_act
from deployments.access import tokens
from pages.deployments.queries import operable_deployment
from pages.deployments.tabs import DeploymentTab, to_tab
from pages.deployments.token_forms import ChangedLimitsForm, DeploymentTokenForm
from pages.deployments.views import page_of
from resources import clock
from sessions.errors import RejectedError


@signed_in_act
@sensitive_variables("made")
def create(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Make a token; the response is the only page that shows its secret."""
    deployment = operable_deployment(request, deployment_id)
    form = DeploymentTokenForm(request.POST, prefix="token")
    if form.is_valid():
        asked = form.cleaned_data
        lifetime = timedelta(days=asked["days"]) if asked["days"] else None
        try:
            made = tokens.create_token(
                deployment,
                name=asked["name"],
                actor=request.user,
                expires_at=clock.now() + lifetime if lifetime else None,
                **form.limits(),
            )
            return page_of(request, deployment, made=made)
        except RejectedError as error:
            form.refuse(error)
    return page_of(request, deployment, token_form=form)


@signed_in_act
def change_limits(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Change limits of a token; a refused form is shown again, as 422."""
    deployment = operable_deployment(request, deployment_id)
    form = ChangedLimitsForm.of(deployment, request.POST)
    if form.is_valid():
        token = form.cleaned_data["token"]
        try:
            tokens.change_limits(token, form.limits(), actor=request.user)
            messages.success(request, _("The limits of the token %(name)s are changed.") % {"name": token.name})
            return to_tab(deployment.pk, DeploymentTab.TOKENS)
        except RejectedError as error:
            form.refuse(error)
    return page_of(request, deployment, limits_form=form)
