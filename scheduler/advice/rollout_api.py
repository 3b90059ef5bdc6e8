"""API of whether there is room for what a change of a deployment launches; nothing is written."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.models import User
from deployments import previews
from deployments.models import Deployment, Revision
from deployments.previews import LaunchPreview
from deployments.rest.bodies import NewDeploymentBody, RevisionBody, number
from deployments.rest.tokens import refusals
from deployments.rest.views import RELATED
from resources.amounts.fields import MAX_INTEGER
from restapi.views import ApiView
from scheduler.advice.rollout_placement import RolloutPlacement, placement_of
from scheduler.advice.starts import StartsField


class PlacementSerializer(serializers.Serializer[RolloutPlacement]):
    """Whether the replicas that a change launches have room beside those that serve."""

    launches = serializers.IntegerField(help_text="Replicas that it launches while others serve")
    starts_now = serializers.IntegerField(help_text="Of them, those for which there is room now")
    waits = serializers.BooleanField(help_text="Some of them wait; what serves goes on")
    starts = StartsField(allow_null=True, help_text="When all of them will have started")
    words = serializers.CharField(help_text="The same in words, with what they wait for")


class PlacementBody(RevisionBody):
    """A change: `revision` to activate, so many `replicas`, or else a new revision with what is given."""

    revision = serializers.IntegerField(min_value=1, max_value=MAX_INTEGER, required=False, help_text="Its number")
    replicas = number("replicas")


class NewDeploymentPlacementView(ApiView):
    """Room for a deployment that is not made yet."""

    @extend_schema(
        operation_id="deployments_new_placement_create", request=NewDeploymentBody, responses=PlacementSerializer
    )
    def post(self, request: Request) -> Response:
        """Return whether its replicas could start now; accepts and rejects what `POST /deployments/` does."""
        owner, body = user_of(request), NewDeploymentBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.deployment_request(owner)
        with refusals(asked.revision):
            return _shown(previews.of_creation(owner, asked))


class PlacementView(ApiView):
    """Room for what a change of a deployment launches."""

    @extend_schema(request=PlacementBody, responses=PlacementSerializer)
    def post(self, request: Request, deployment_id: str) -> Response:
        """Return whether its replicas could start now; rejects what the change itself would be rejected for."""
        user, body = user_of(request), PlacementBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        deployment = _deployment(user, deployment_id, of_owner=not {"revision", "replicas"} & asked.keys())
        if {"revision", "replicas"} & asked.keys() and len(asked) > 1:
            raise ValidationError("Ask for one change: a revision, a number of replicas, or a new revision.")
        return _shown(_preview(deployment, body))


def _deployment(user: User, deployment_id: str, *, of_owner: bool) -> Deployment:
    """Return the deployment if the user may change it so: what replicas run is for the owner to say."""
    found = Deployment.objects.live().select_related(*RELATED, "revision__image").operable_by(user)
    if of_owner and not user.is_superuser:
        found = found.filter(owner=user)
    return get_object_or_404(found, pk=deployment_id)


def _preview(deployment: Deployment, body: PlacementBody) -> LaunchPreview:
    asked: dict[str, Any] = body.validated_data
    if "revision" in asked:
        revisions = Revision.objects.select_related("image")
        revision = get_object_or_404(revisions, deployment=deployment, number=asked["revision"])
        with refusals():
            return previews.of_activation(deployment, revision)
    if "replicas" in asked:
        with refusals():
            return previews.of_scale(deployment, asked["replicas"])
    request = body.revision_request(deployment.owner, deployment.revision)
    with refusals(request):
        return previews.of_revision(deployment, request)


def _shown(preview: LaunchPreview) -> Response:
    return Response(PlacementSerializer(placement_of(preview)).data)
