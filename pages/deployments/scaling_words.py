"""What holds of how a deployment follows its load, in words."""

from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from deployments.models import Deployment, ScalingMetric, ScalingRule
from deployments.services import count
from resources.amounts.units import fgpu_text
from resources.templatetags.units import duration
from translation.english import from_english


def rules_of(deployment: Deployment) -> list[Any]:
    """Return the rules, each with its words."""
    rules: list[Any] = list(deployment.scaling_rules.all())
    for rule in rules:
        rule.words = rule_words(rule)
        rule.target_text = _number(rule.target)
    return rules


def rule_words(rule: ScalingRule) -> str:
    """Return what one replica is for."""
    words = {
        ScalingMetric.OUTSTANDING: _("%(target)s requests a replica"),
        ScalingMetric.REQUESTS: _("%(target)s requests a second a replica"),
        ScalingMetric.GPU: _("%(target)s %% in use of a replica's share of the GPU"),
        ScalingMetric.QUERY: _("%(target)s of a query's result a replica"),
    }
    return words[ScalingMetric(rule.metric)] % {"target": _number(rule.target)}


def scaling_words(deployment: Deployment, rules: list[Any]) -> str:
    """Return one sentence: between which numbers it is scaled, by what, and when it sleeps."""
    least, most = deployment.min_replicas, deployment.max_replicas
    gives = _("those beyond %(least)s give way to sessions that wait") % {"least": least}
    if most is None:
        words = _("Not scaled by its load: the number of replicas stays as you set it.")
        return f"{words} ({gives})" if deployment.is_preemptible else words
    parts = [_bounds_words(least, most), *(rule.words for rule in rules if not rule.is_paused)]
    if deployment.max_fgpu is not None:
        parts.append(_("a replica grows to %(share)s fGPU first") % {"share": fgpu_text(deployment.max_fgpu)})
    if deployment.is_preemptible:
        parts.append(gives)
    if deployment.idle_seconds is None:
        parts.append(_("never sleeps"))
    else:
        span = duration(timedelta(seconds=deployment.idle_seconds))
        parts.append(_("sleeps after %(span)s without requests") % {"span": span})
    return "; ".join(parts)


def _bounds_words(least: int, most: int) -> str:
    if least == most:
        return from_english(count(most))
    return _("%(least)s to %(most)s replicas") % {"least": least, "most": most}


def _number(value: float) -> str:
    return f"{value:.10g}"
