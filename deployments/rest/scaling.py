"""API of how deployments follow their load: bounds, sleep, and rules."""

from collections.abc import Callable
from typing import Any, Final

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from redis.exceptions import RedisError
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.serializers import StrictSerializer
from deployments.models import (
    MAX_QUERY_NAME_LENGTH,
    Deployment,
    PrometheusQuery,
    ScalingMetric,
    ScalingRule,
    SleepAction,
)
from deployments.scaling import load
from deployments.scaling import services as scaling
from deployments.scaling.memory import Memory
from deployments.scaling.validation import RANGES
from resources.amounts.fields import FgpuField, FgpuTextField
from restapi.fields import ShownSerializer
from restapi.views import ApiViewSet, valid_body

SETTINGS: Final = tuple(name for name in scaling.SETTINGS if name not in ("is_preemptible", "max_fgpu"))
RULE: Final = r"scaling/rules/(?P<rule_id>[0-9]{1,18})"


class ScalingRuleSerializer(ShownSerializer[ScalingRule]):
    """A rule: what it looks at, and how much of that one replica is for."""

    paused = serializers.BooleanField(source="is_paused", read_only=True, help_text="It does not count")

    class Meta:
        model = ScalingRule
        fields = ("id", "metric", "target", "query", "paused")


class PrometheusQuerySerializer(ShownSerializer[PrometheusQuery]):
    """A query of the administrator's that a rule may name."""

    class Meta:
        model = PrometheusQuery
        fields = ("name", "title")


class ScalingSerializer(ShownSerializer[Deployment]):
    """How a deployment follows its load."""

    rules = ScalingRuleSerializer(source="scaling_rules", many=True, read_only=True)
    preemptible = serializers.BooleanField(
        source="is_preemptible", read_only=True, help_text="Replicas beyond the least end for sessions that wait"
    )
    max_fgpu = FgpuTextField(
        allow_null=True, help_text="To which a replica grows before a further one comes; null: none"
    )
    queries = serializers.SerializerMethodField(help_text="That rules may name")
    decision = serializers.SerializerMethodField(help_text="Why so many replicas are wanted now; empty while unknown")

    class Meta:
        model = Deployment
        fields = (
            *SETTINGS,
            "max_fgpu",
            "preemptible",
            "asleep_since",
            "waking_since",
            "replicas",
            "rules",
            "queries",
            "decision",
        )

    @extend_schema_field(PrometheusQuerySerializer(many=True))
    def get_queries(self, deployment: Deployment) -> Any:
        """Return what the administrator offers."""
        return PrometheusQuerySerializer(scaling.offered_queries(), many=True).data

    def get_decision(self, deployment: Deployment) -> str:
        """Return the sentence of the autoscaler's last look."""
        try:
            [found] = load.loads([deployment.pk])
        except (RedisError, OSError):
            return ""
        return Memory.of_json(found.memory).note


def _number(name: str, **options: Any) -> serializers.IntegerField:
    low, high = RANGES[name]
    return serializers.IntegerField(min_value=low, max_value=high, required=False, **options)


class ScalingBody(StrictSerializer):
    """Settings of scaling, as far as they are to change."""

    min_replicas = _number("min_replicas", help_text="While it is awake")
    max_replicas = _number("max_replicas", allow_null=True, help_text="null: it is not scaled by its load")
    down_after_seconds = _number("down_after_seconds", help_text="Without need, before replicas are ended")
    cooldown_seconds = _number("cooldown_seconds", help_text="Between two changes of the number of replicas")
    idle_seconds = _number("idle_seconds", allow_null=True, help_text="Before it falls asleep; null: never")
    idle_action = serializers.ChoiceField(choices=SleepAction.values, required=False)
    wake_seconds = _number("wake_seconds", help_text="That a request waits at most for a replica to wake")
    max_fgpu = FgpuField(
        required=False, allow_null=True, help_text="To which a replica grows before a further one comes; null: none"
    )
    preemptible = serializers.BooleanField(
        source="is_preemptible", required=False, help_text="Replicas beyond the least end for sessions that wait"
    )


class RuleChangeBody(StrictSerializer):
    """What of a rule is to change."""

    target = serializers.FloatField(required=False, help_text="For one replica")
    paused = serializers.BooleanField(required=False)


class RuleBody(StrictSerializer):
    """A rule to add."""

    metric = serializers.ChoiceField(choices=ScalingMetric.values)
    target = serializers.FloatField(help_text="For one replica")
    query = serializers.CharField(
        max_length=MAX_QUERY_NAME_LENGTH, required=False, allow_blank=True, help_text="The name of one of `queries`"
    )
    paused = serializers.BooleanField(default=False)


class ScalingActions(ApiViewSet[Deployment]):
    """The actions on a deployment that are about its load."""

    @extend_schema(responses=ScalingSerializer)
    @action(detail=True, pagination_class=None)
    def scaling(self, request: Request, pk: str) -> Response:
        """Show how the deployment follows its load."""
        return Response(self._scaling())

    @extend_schema(request=ScalingBody, responses=ScalingSerializer)
    @scaling.mapping.patch
    def change_scaling(self, request: Request, pk: str) -> Response:
        """Change between which numbers of replicas it is scaled, and when it falls asleep."""
        deployment, asked = self.get_object(), valid_body(ScalingBody, request)
        scaling.change(deployment, asked, actor=user_of(request))
        return Response(self._scaling())

    @extend_schema(request=None, responses=ScalingSerializer)
    @action(detail=True, methods=["post"])
    def sleep(self, request: Request, pk: str) -> Response:
        """Have no replicas run until a request comes."""
        return self._done(scaling.sleep_now, request)

    @extend_schema(request=None, responses=ScalingSerializer)
    @action(detail=True, methods=["post"])
    def wake(self, request: Request, pk: str) -> Response:
        """Have the deployment run again before a request comes."""
        return self._done(scaling.wake_now, request)

    @extend_schema(request=RuleBody, responses={201: ScalingRuleSerializer})
    @action(detail=True, methods=["post"], url_path="scaling/rules")
    def create_rule(self, request: Request, pk: str) -> Response:
        """Add a rule; of several, the one that needs most replicas counts."""
        deployment, asked = self.get_object(), valid_body(RuleBody, request)
        asked["is_paused"] = asked.pop("paused")
        rule = scaling.add_rule(deployment, **asked, actor=user_of(request))
        return Response(ScalingRuleSerializer(rule).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=RuleChangeBody, responses=ScalingRuleSerializer)
    @action(detail=True, methods=["patch"], url_path=RULE)
    def change_rule(self, request: Request, pk: str, rule_id: str) -> Response:
        """Change what one replica is for, or pause the rule."""
        rule, asked = self._rule(rule_id), valid_body(RuleChangeBody, request)
        changed = scaling.change_rule(
            rule, target=asked.get("target"), is_paused=asked.get("paused"), actor=user_of(request)
        )
        return Response(ScalingRuleSerializer(changed).data)

    @extend_schema(request=None, responses={204: None})
    @change_rule.mapping.delete
    def remove_rule(self, request: Request, pk: str, rule_id: str) -> Response:
        """Remove the rule."""
        scaling.remove_rule(self._rule(rule_id), actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _done(self, act: Callable[..., object], request: Request) -> Response:
        act(self.get_object(), actor=user_of(request))
        return Response(self._scaling())

    def _rule(self, rule_id: str) -> ScalingRule:
        rules = ScalingRule.objects.select_related("deployment__owner")
        return get_object_or_404(rules, deployment=self.get_object(), pk=rule_id)

    def _scaling(self) -> Any:
        return ScalingSerializer(self.get_object()).data
