"""API of live resize: a running session gets other amounts of CPU, memory and its GPU."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.serializers import StrictSerializer
from resources.amounts.fields import MAX_INTEGER, FgpuField, SizeField
from restapi.views import ApiViewSet, valid_body
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.serializers import SessionSerializer


class ResizeSerializer(StrictSerializer):
    """What a session is to hold; what is left out stays as it is."""

    cpu = serializers.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER)
    memory = SizeField(required=False)
    fgpu = FgpuField(required=False, help_text="Of the one GPU of which it holds a part")
    gpu_memory = SizeField(required=False, help_text="Of that GPU, in place of `fgpu`, if it was launched with some")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a request that names no amount."""
        if not attrs:
            raise serializers.ValidationError("Name at least one of cpu, memory, fgpu and gpu_memory.")
        if {"fgpu", "gpu_memory"} <= attrs.keys():
            raise serializers.ValidationError({"gpu_memory": "Name fgpu or gpu_memory, not both."})
        return attrs


class ResizingActions(ApiViewSet[Session]):
    """The action on a session that resizes it."""

    @extend_schema(request=ResizeSerializer, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def resize(self, request: Request, pk: str) -> Response:
        """Have the session's host change what it holds, while what runs in it goes on; that of all members, or of none.

        It holds the greater of each amount until its host has applied the change; `resizing` is then null. Where it
        uses more than was asked for, it has what it had before, and an event RESIZE_REFUSED has the cause; so of each
        member.
        """
        session = self.get_object()
        asked = valid_body(ResizeSerializer, request)
        before = {"cpu": session.cpu, "memory": session.memory, "fgpu": session.fgpu}
        if "gpu_memory" in asked:
            asked["fgpu"] = resizing.share_for(session, asked.pop("gpu_memory"))
        resizing.resize(session, SessionSize(**before | asked), actor=user_of(request))
        return Response(self.get_serializer(self.get_object()).data)
