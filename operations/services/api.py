"""API of the services, for superadmins."""

from typing import Any, ClassVar

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import ForSuperadmins, user_of
from accounts.serializers import StrictSerializer
from operations.services import hosts as host_services
from operations.services.acts import carry_out, refusal
from operations.services.base import (
    DEFAULT_LINES,
    MAX_LINES,
    ServiceAction,
    ServiceControlError,
    ServiceManager,
    ServiceStatus,
)
from operations.services.local import local_manager
from resources.admin_api.base import NotPossibleError
from resources.models import Host, HostStatus
from restapi.fields import RowNameField
from restapi.views import ApiView, valid_body

NO_MANAGER = OpenApiResponse(description="Nothing that can be asked runs the platform on the web server's machine")


class ServiceStateSerializer(serializers.Serializer[Any]):
    """A service of the web server's machine."""

    name = serializers.CharField()
    status = serializers.ChoiceField([status.value for status in ServiceStatus])
    pid = serializers.IntegerField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    restarts = serializers.IntegerField(allow_null=True, help_text="Made by its manager")


class HostServicesSerializer(serializers.Serializer[Any]):
    """The host worker and the gateway of a host."""

    host = serializers.CharField()
    status = serializers.ChoiceField(HostStatus.choices)
    heartbeat_at = serializers.DateTimeField(allow_null=True)
    gateway_responds = serializers.BooleanField(allow_null=True, help_text="null: it has none, or it is not known")


class ServicesSerializer(serializers.Serializer[Any]):
    """All services, as far as the web server can ask."""

    manager = serializers.CharField(help_text="What runs them on the web server's machine; empty: nothing known")
    services = ServiceStateSerializer(many=True)
    hosts = HostServicesSerializer(many=True)


class ServiceActSerializer(StrictSerializer):
    """An act on a service of the web server's machine, or the restart of a host's worker."""

    action = serializers.ChoiceField([action.value for action in ServiceAction])
    service = serializers.SlugField(max_length=64, required=False)
    host = RowNameField(slug_field="name", queryset=Host.objects.all(), required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values. Raises ValidationError unless they are one thing that can be done."""
        if ("service" in attrs) == ("host" in attrs):
            raise ValidationError(_("Choose a service or a host."))
        if "host" in attrs and attrs["action"] != ServiceAction.RESTART:
            raise ValidationError({"action": [_("A host's worker can only be restarted from here.")]})
        if "service" in attrs and (text := refusal(attrs["action"], attrs["service"])):
            raise ValidationError({"action": [text]})
        return attrs


class ServiceLogQuery(serializers.Serializer[Any]):
    """Which lines to return."""

    service = serializers.SlugField(max_length=64)
    lines = serializers.IntegerField(min_value=1, max_value=MAX_LINES, default=DEFAULT_LINES)


class ServiceLogSerializer(serializers.Serializer[Any]):
    """The newest lines of a log, the oldest first."""

    lines = serializers.ListField(child=serializers.CharField())


class ServicesView(ForSuperadmins, ApiView):
    """Services of the web server's machine and of hosts; for superadmins."""

    @extend_schema(operation_id="admin_services_list", responses=ServicesSerializer)
    def get(self, request: Request) -> Response:
        """Show what runs."""
        manager: ServiceManager | None = None
        try:
            manager = local_manager()
            states = manager.states()
        except ServiceControlError:
            states = []
        found = {"manager": manager.title if manager else "", "services": states, "hosts": host_services.read()}
        return Response(ServicesSerializer(found).data)

    @extend_schema(request=ServiceActSerializer, responses={202: None, 204: None, 409: NO_MANAGER})
    def post(self, request: Request) -> Response:
        """Start, stop or restart one; 202 where that goes on."""
        asked = valid_body(ServiceActSerializer, request)
        data, actor = asked, user_of(request)
        if "host" in data:
            host_services.restart_worker(data["host"], actor=actor)
            return Response(status=202)
        try:
            is_done = carry_out(local_manager(), ServiceAction(data["action"]), data["service"], actor=actor)
        except ServiceControlError as error:
            raise NotPossibleError(str(error)) from error
        return Response(status=204 if is_done else 202)


class ServiceLogView(ForSuperadmins, ApiView):
    """Logs of services of the web server's machine; for superadmins."""

    query_serializers: ClassVar = {"get": ServiceLogQuery}

    @extend_schema(
        operation_id="admin_services_log_retrieve",
        parameters=[ServiceLogQuery],
        responses={200: ServiceLogSerializer, 409: NO_MANAGER},
    )
    def get(self, request: Request) -> Response:
        """Show the newest lines."""
        try:
            return Response({"lines": local_manager().log(self.query["service"], self.query["lines"])})
        except ServiceControlError as error:
            raise NotPossibleError(str(error)) from error
