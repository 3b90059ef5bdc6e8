"""API of images made of sessions: what would be saved, conversions, and one's images."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.serializers import StrictSerializer
from resources.models import Image
from restapi.fields import ShownSerializer
from restapi.views import ApiViewSet, valid_body
from sessions.conversion import change_reports, private_images
from sessions.conversion import services as conversions
from sessions.errors import RejectedError
from sessions.models import ChangeReport, Conversion, ConversionState, ReportState, Session


class InUseError(APIException):
    """The image cannot be deleted while sessions use it; the detail names them."""

    status_code = status.HTTP_409_CONFLICT


class ConversionRequestSerializer(StrictSerializer):
    """What the image is called; both are checked where the conversion is asked for."""

    name = serializers.CharField(help_text="Small letters and digits, with single . _ or - between them")
    tag = serializers.CharField(default="1")
    description = serializers.CharField(default="", allow_blank=True)


class ConversionSerializer(ShownSerializer[Conversion]):
    """A session on its way to an image; `reference` is the image's full name once it is DONE."""

    state = serializers.ChoiceField(choices=[state.value for state in ConversionState], read_only=True)
    requested_by = serializers.EmailField(source="requested_by.email", default=None, read_only=True, allow_null=True)
    session = serializers.CharField(source="session_id", read_only=True)

    class Meta:
        model = Conversion
        fields = (
            *("id", "session", "name", "tag", "reference", "description", "state", "progress", "problem"),
            *("recipe", "requested_by", "created_at", "ended_at"),
        )


class ChangeReportSerializer(ShownSerializer[ChangeReport]):
    """What a session's container has that its image has not; `report` is empty until it is READY."""

    state = serializers.ChoiceField(choices=[state.value for state in ReportState], read_only=True)

    class Meta:
        model = ChangeReport
        fields = ("state", "requested_at", "made_at", "report", "recipe", "problem")


class PrivateImageSerializer(ShownSerializer[Image]):
    """An image that was made of a session; `hosts` have it, and no others can where it `is_local`."""

    owner = serializers.EmailField(source="owner.email", read_only=True)
    name = serializers.CharField(source="environment", read_only=True)
    tag = serializers.CharField(source="version", read_only=True)
    hosts = serializers.SerializerMethodField()
    live_sessions = serializers.IntegerField(read_only=True, help_text="Sessions that use it now")

    class Meta:
        model = Image
        fields = (
            *("id", "reference", "name", "tag", "owner", "description", "size", "is_local", "hosts"),
            *("live_sessions", "created_at"),
        )

    def get_hosts(self, image: Image) -> list[str]:
        """Return the names of the hosts that have it, which the view has fetched."""
        return sorted(row.host.name for row in image.on_hosts.all())


class ConversionActions(ApiViewSet[Session]):
    """The actions on a session that turn it into an image."""

    @extend_schema(
        request=ConversionRequestSerializer,
        responses={201: ConversionSerializer},
    )
    @action(detail=True, methods=["post"])
    def convert(self, request: Request, pk: str) -> Response:
        """Save the running session as a private image of its owner, in the background; see `conversions`."""
        session = self._convertible(request)
        asked = valid_body(ConversionRequestSerializer, request)
        conversion = conversions.request(session, actor=user_of(request), **asked)
        return Response(ConversionSerializer(conversion).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses=ConversionSerializer(many=True))
    @action(detail=True)
    def conversions(self, request: Request, pk: str) -> Response:
        """List the session's conversions into images, newest first."""
        return self.page_of(conversions.of_session(self.get_object()), ConversionSerializer)

    @extend_schema(responses={200: ChangeReportSerializer, 202: ChangeReportSerializer})
    @action(detail=True, pagination_class=None)
    def changes(self, request: Request, pk: str) -> Response:
        """Show what an image of the session would hold; 202 while its host is still looking: ask again."""
        report = change_reports.request(self._convertible(request))
        is_waiting = report.state == ReportState.QUEUED
        code = status.HTTP_202_ACCEPTED if is_waiting else status.HTTP_200_OK
        return Response(ChangeReportSerializer(report).data, status=code)

    def _convertible(self, request: Request) -> Session:
        session = self.get_object()
        if not conversions.may_convert(user_of(request), session):
            raise PermissionDenied("Your policy does not let you save sessions as images; ask an administrator.")
        return session


class PrivateImageViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[Image]):
    """The images made of the caller's sessions, newest first; superadmins see everybody's."""

    queryset = Image.objects.all()
    serializer_class = PrivateImageSerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Image]:
        """Return the images visible to the caller with their hosts; two queries for any number."""
        return private_images.visible_to(user_of(self.request))

    @extend_schema(responses={204: None, 409: OpenApiResponse(description="Sessions use it")})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete the image on all hosts and in the registry; refused while sessions use it."""
        return super().destroy(request, *args, **kwargs)

    def perform_destroy(self, instance: Image) -> None:
        """Delete the image. Raises InUseError."""
        try:
            private_images.delete(instance, actor=user_of(self.request))
        except RejectedError as error:
            raise InUseError(str(error)) from error
