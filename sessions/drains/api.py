"""API by which superadmins take hosts out of service and back."""

from datetime import timedelta
from typing import Final

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import ForSuperadmins, user_of
from accounts.serializers import StrictSerializer
from resources import clock
from resources.models import Host
from restapi.views import ApiView, valid_body
from sessions.drains import services as drains

MAX_DELAY: Final = timedelta(days=365)  # the host writes its row too, and no times of another century


class DrainSerializer(StrictSerializer):
    """How a host is taken out of service."""

    end_at = serializers.DateTimeField(
        default=None, allow_null=True, help_text="Sessions that run then are ended; null lets them finish"
    )
    reason = serializers.CharField(max_length=200, default="", allow_blank=True, help_text="Everybody sees it")


class DrainedSerializer(StrictSerializer):
    """What is left on a host that is drained."""

    sessions = serializers.ListField(child=serializers.CharField(), help_text="Ids of the sessions that are left")


class HostDrainView(ForSuperadmins, ApiView):
    """Takes a host out of service, and back; for superadmins."""

    @extend_schema(
        request=DrainSerializer,
        responses=DrainedSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        """Place no more sessions on the host, and end those that are left, at a time or when they finish."""
        host = get_object_or_404(Host, name=name)
        asked = valid_body(DrainSerializer, request)
        end_at = asked["end_at"]
        if end_at is not None and end_at < clock.now():
            raise ValidationError({"end_at": ["This time has passed."]})
        if end_at is not None and end_at > clock.now() + MAX_DELAY:
            raise ValidationError({"end_at": [f"At most {MAX_DELAY.days} days from now; null lets sessions finish."]})
        left = drains.drain(host, end_at=end_at, reason=asked["reason"], actor=user_of(request))
        return Response({"sessions": [session.pk for session in left]})

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Place sessions on the host again."""
        drains.undrain(get_object_or_404(Host, name=name), actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)
