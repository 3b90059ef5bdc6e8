"""API of the scheduler: estimates for sessions not yet submitted."""

from collections.abc import Mapping
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from resources.amounts.units import fgpu_text
from restapi.views import ApiView
from scheduler.advice.estimate import Estimate, estimate
from scheduler.advice.place import place_of
from scheduler.advice.starts import StartsField
from scheduler.core.types import QueueOrder
from sessions.api import by_request_field
from sessions.launching.serializers import LaunchRequestSerializer
from sessions.models import Session
from sessions.serializers import StartRangeSerializer


class SessionEstimateSerializer(StartRangeSerializer):
    """When one of the sessions would start, and why not earlier."""

    starts = StartsField(allow_null=True)
    reason = serializers.CharField(help_text="Why not now; empty where it starts now")
    eta_reason = serializers.CharField(help_text="Why not earlier than that")


class AlternativeSerializer(serializers.Serializer[Any]):
    """A changed request, of which all sessions would start sooner."""

    resource_group = serializers.CharField()
    cpu = serializers.IntegerField()
    memory = serializers.IntegerField(help_text="Bytes")
    fgpu = serializers.CharField()
    starts = StartsField(allow_null=True)


class GpuRoomSerializer(serializers.Serializer[Any]):
    """How often a request by GPU memory fits now on one kind of GPUs of a group."""

    resource_group = serializers.CharField()
    gpu_model = serializers.CharField(help_text="Empty where hosts have several")
    gpu_memory = serializers.IntegerField(help_text="Bytes of such a GPU")
    fgpu = serializers.CharField(help_text="What the memory asked for is there")
    fits = serializers.IntegerField(help_text="How often, as things are now")


class EstimateSerializer(StartRangeSerializer):
    """When all sessions of a launch request would have started, and why not earlier."""

    starts = StartsField(allow_null=True)
    reason = serializers.CharField(help_text="Why not now; empty where it starts now")
    eta_reason = serializers.CharField(help_text="Why not earlier than that")
    sessions = SessionEstimateSerializer(many=True, help_text="Each of the sessions, in the order of their starts")
    alternatives = AlternativeSerializer(many=True)
    gpus = GpuRoomSerializer(many=True, help_text="Of a request by GPU memory: the kinds of GPUs that have it")


class EstimateView(ApiView):
    """Estimate for a launch request that is not submitted."""

    @extend_schema(request=LaunchRequestSerializer, responses=EstimateSerializer)
    def post(self, request: Request) -> Response:
        """Return when it would start; accepts and rejects what `POST /sessions/` does, and writes nothing."""
        body = LaunchRequestSerializer(data=request.data, context={"request": request})
        body.is_valid(raise_exception=True)
        return Response(EstimateSerializer(as_data(estimate(user_of(request), body.launch_request()))).data)

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, Any]:
        """Return them by field of the launch request."""
        return by_request_field(errors, self.request.data)


class PlaceSerializer(serializers.Serializer[Any]):
    """Place of a session in its group's queue; all null where it does not wait for its turn."""

    ahead = serializers.IntegerField(allow_null=True, help_text="Sessions of its group that are served before it")
    own_ahead = serializers.IntegerField(allow_null=True, help_text="Of these, the same owner's")
    order = serializers.ChoiceField([order.value for order in QueueOrder], allow_null=True)
    used_percent = serializers.IntegerField(
        allow_null=True, help_text="Fair order: part of recent use, of project or owner"
    )
    fair_percent = serializers.IntegerField(allow_null=True, help_text="Fair order: the part due by weight")
    member_used_percent = serializers.IntegerField(
        allow_null=True, help_text="Fair order, for a session of a project: its owner's part of what the project used"
    )
    member_fair_percent = serializers.IntegerField(
        allow_null=True, help_text="Fair order, for a session of a project: its owner's part due among the members"
    )


class PlaceView(ApiView):
    """Place of a waiting session in its group's queue."""

    @extend_schema(responses=PlaceSerializer)
    def get(self, request: Request, session_id: str) -> Response:
        """Return how many are served before it, and in fair order what its owner used and is due."""
        session = get_object_or_404(Session.objects.visible_to(user_of(request)), pk=session_id)
        found = place_of(session)
        names: list[str] = list(PlaceSerializer().fields)
        return Response(PlaceSerializer({name: getattr(found, name, None) for name in names}).data)


def as_data(found: Estimate) -> dict[str, Any]:
    """Return the estimate as the API and the pages show it."""
    return {
        **found.advice.last._asdict(),
        "sessions": [each._asdict() for each in found.advice.sessions],
        "alternatives": [
            {
                "resource_group": found.group_names[each.group_id],
                "cpu": each.cpu,
                "memory": each.memory_bytes,
                "fgpu": fgpu_text(each.fgpu_milli),
                "starts": each.starts,
            }
            for each in found.advice.alternatives
        ],
        "gpus": [
            {
                "resource_group": found.group_names.get(each.group_id, ""),
                "gpu_model": each.model,
                "gpu_memory": each.memory,
                "fgpu": fgpu_text(each.fgpu_milli),
                "fits": each.fits,
            }
            for each in found.rooms
        ],
    }
