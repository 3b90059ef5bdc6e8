"""How a deployment follows its load: bounds, sleep and rules, changed on its page."""

import math
from functools import partial

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_act
from deployments.models import ScalingRule
from deployments.scaling import services
from pages.deployments.act_views import done
from pages.deployments.queries import operable_deployment
from pages.deployments.scaling_forms import RuleForm, ScalingForm
from pages.deployments.tabs import DeploymentTab
from pages.deployments.views import saved


@signed_in_act
def change(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Change bounds and sleep; a refused form is shown again, as 422."""
    deployment = operable_deployment(request, deployment_id)
    form = ScalingForm.of(deployment, request.POST)

    def act() -> None:
        services.change(deployment, form.changes(), actor=request.user)

    return saved(request, deployment, _("The settings are saved."), act, scaling_form=form)


@signed_in_act
def sleep(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Have no replicas run until a request comes."""
    deployment = operable_deployment(request, deployment_id)
    text = _("It falls asleep; the next request wakes it.")
    return done(
        request, deployment_id, text, lambda: services.sleep_now(deployment, actor=request.user), DeploymentTab.SCALING
    )


@signed_in_act
def wake(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Have the deployment run again before a request comes."""
    deployment = operable_deployment(request, deployment_id)
    act = partial(services.wake_now, deployment, actor=request.user)
    return done(request, deployment_id, _("It wakes."), act, DeploymentTab.SCALING)


@signed_in_act
def add_rule(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Add a rule; a refused form is shown again, as 422."""
    deployment = operable_deployment(request, deployment_id)
    form = RuleForm(request.POST, prefix="rule")

    def act() -> None:
        services.add_rule(deployment, **form.cleaned_data, actor=request.user)

    return saved(request, deployment, _("The rule is added."), act, rule_form=form)


@signed_in_act
def change_rule(request: UserRequest, deployment_id: str, rule_id: int) -> HttpResponse:
    """Change what one replica is for, or pause the rule, or have it count again: what is posted."""
    rule = _rule(request, deployment_id, rule_id)
    target = _target(request.POST["target"]) if "target" in request.POST else None
    is_paused = request.POST["paused"] == "yes" if "paused" in request.POST else None
    return done(
        request,
        deployment_id,
        _("The rule is changed."),
        lambda: services.change_rule(rule, target=target, is_paused=is_paused, actor=request.user),
        DeploymentTab.SCALING,
    )


@signed_in_act
def remove_rule(request: UserRequest, deployment_id: str, rule_id: int) -> HttpResponse:
    """Remove a rule."""
    rule = _rule(request, deployment_id, rule_id)
    text = _("The rule is removed.")
    return done(
        request, deployment_id, text, lambda: services.remove_rule(rule, actor=request.user), DeploymentTab.SCALING
    )


def _rule(request: UserRequest, deployment_id: str, rule_id: int) -> ScalingRule:
    deployment = operable_deployment(request, deployment_id)
    rules = ScalingRule.objects.select_related("deployment__owner")
    return get_object_or_404(rules, deployment=deployment, pk=rule_id)


def _target(text: str) -> float:
    """Return the number; one that no rule allows for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
