"""API of what a deployment serves now, and has served over time."""

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from redis.exceptions import RedisError
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from deployments import figures
from deployments.models import Deployment
from deployments.usage import history
from deployments.usage.history import STEPS, FiguresPoint, FiguresSpan
from restapi.views import ApiViewSet


class FiguresQuery(serializers.Serializer[Any]):
    """Query parameters of the figures."""

    span = serializers.ChoiceField(
        choices=[each.value for each in FiguresSpan],
        default=FiguresSpan.HOUR.value,
        help_text="How far back: an hour by minutes, a day by quarters of an hour, a week by two hours",
    )


class FiguresUnavailableError(APIException):
    """What was served cannot be read now."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class FiguresPointSerializer(serializers.Serializer[FiguresPoint]):
    """What a deployment has served in a period, and what its replicas held."""

    at = serializers.DateTimeField(help_text="When the period began")
    requests = serializers.IntegerField(source="served.requests")
    requests_per_second = serializers.FloatField(help_text="On average")
    errors = serializers.IntegerField(  # type: ignore[assignment]  # the metaclass collects it
        source="served.errors", help_text="Answered with 5xx, or broken off"
    )
    rejected = serializers.IntegerField(
        source="served.rejected", help_text="With 429 or 503, as all replicas were busy or none was there"
    )
    p50_seconds = serializers.SerializerMethodField(help_text="Within which half of them were over; a bound")
    p95_seconds = serializers.SerializerMethodField(help_text="Within which 95 % of them were over; a bound")
    sent_bytes = serializers.IntegerField(source="served.sent_bytes")
    prompt_tokens = serializers.IntegerField(source="served.prompt_tokens", help_text="That models have read")
    completion_tokens = serializers.IntegerField(source="served.completion_tokens", help_text="That they have written")
    outstanding = serializers.FloatField(help_text="Requests under way, on average")
    waiting = serializers.FloatField(help_text="Requests that waited for a replica, on average")
    replicas = serializers.FloatField(help_text="On a host, on average")
    gpu_percent = serializers.FloatField(
        allow_null=True, help_text="Of what the replicas hold of GPUs; null where that is not known"
    )
    fgpu_hours = serializers.FloatField(source="held.fgpu_hours", help_text="That the replicas held")
    fgpu_hours_per_1000_requests = serializers.FloatField(allow_null=True, help_text="null without requests")

    def get_p50_seconds(self, point: FiguresPoint) -> float | None:
        """Return the bound."""
        return point.served.quantile(0.5)

    def get_p95_seconds(self, point: FiguresPoint) -> float | None:
        """Return the bound."""
        return point.served.quantile(0.95)


class FiguresSerializer(serializers.Serializer[Any]):
    """What a deployment serves now, and has served over time."""

    outstanding = serializers.IntegerField(help_text="Requests that replicas serve now")
    waiting = serializers.IntegerField(help_text="Requests that wait for a replica now")
    span = serializers.ChoiceField(choices=[each.value for each in FiguresSpan])
    step = serializers.IntegerField(help_text="Seconds of a point")
    points = FiguresPointSerializer(many=True, help_text="The running one last")


class FigureActions(ApiViewSet[Deployment]):
    """The action on a deployment that shows its figures."""

    @extend_schema(responses=FiguresSerializer)
    @action(detail=True, pagination_class=None)
    def figures(self, request: Request, pk: str) -> Response:
        """Show what it serves now, and has served over an hour, a day or a week."""
        deployment, span = self.get_object(), FiguresSpan(self.query["span"])
        try:
            now = figures.load_now(deployment.pk)
            points = history.points(deployment, span)
        except (RedisError, OSError) as error:
            raise FiguresUnavailableError(_("There are no figures at present; try again.")) from error
        shown = {
            **{"outstanding": sum(now.outstanding.values()), "waiting": now.waiting},
            **{"span": span, "step": STEPS[span][0], "points": points},
        }
        return Response(FiguresSerializer(shown).data)
