"""API of the output of a deployment's replicas, as one log."""

from functools import partial
from typing import Any

from channels.db import database_sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from accounts.api import user_of
from accounts.credentials import validity as credentials
from deployments import logs
from deployments.models import Deployment
from deployments.rest.tokens import refusals
from restapi.streams import LAST_EVENT_ID, EventStreamRenderer, stream_response
from restapi.views import ApiViewSet
from sessions.api import PlainTextRenderer
from sessions.following.api import RESUME, STREAM


class DeploymentLogsQuery(serializers.Serializer[Any]):
    """Query parameters of the log."""

    tail = serializers.IntegerField(default=1000, min_value=1, max_value=100_000, help_text="Lines from the end")
    replica = serializers.CharField(
        default="", allow_blank=True, max_length=64, help_text="The id or name of one; by default all"
    )


class LogActions(ApiViewSet[Deployment]):
    """The actions on a deployment that are about the output of its replicas."""

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, renderer_classes=[JSONRenderer, PlainTextRenderer], pagination_class=None)
    def logs(self, request: Request, pk: str) -> HttpResponse:
        """Return the last lines of all replicas as plain text, each with its replica; for the owner and superadmins.

        Replicas that have ended within the hour, eight at most, are in it.
        """
        deployment = self.get_object()
        with refusals():
            text = logs.read(deployment, self.query["tail"], self.query["replica"])
        return HttpResponse(text, content_type="text/plain; charset=utf-8")

    @extend_schema(parameters=[RESUME], responses=STREAM, operation_id="deployments_logs_follow")
    @action(detail=True, url_path="logs/follow", renderer_classes=[EventStreamRenderer], pagination_class=None)
    def follow_logs(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Send the output of all replicas, also of those that come, until the deployment has ended.

        Events: `output` with whole lines, each with its replica, and `end` with `{state}`.
        """
        deployment, last = self.get_object(), request.headers.get(LAST_EVENT_ID)
        try:
            places = logs.places_of(last) if last else {}
        except ValueError as error:
            raise ValidationError({LAST_EVENT_ID: ["This is no id of an event of this stream."]}) from error
        with refusals():
            follower = logs.ReplicaLogFollower(deployment, self.query["replica"], places, self.query["tail"])
        may_follow = database_sync_to_async(partial(self._may_follow, request, deployment.pk))
        return stream_response(user_of(request).pk, follower.events(), may_follow)

    def _may_follow(self, request: Request, pk: str) -> bool:
        return credentials.are_valid(request) and self.get_queryset().filter(pk=pk).exists()
