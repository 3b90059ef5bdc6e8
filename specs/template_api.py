"""API of launch templates."""

from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.serializers import StrictSerializer
from restapi.fields import ShownSerializer
from restapi.views import ApiViewSet, etag_of, valid_body
from sessions.models import SESSION_ID
from specs import template_launches
from specs.api import SpecDocumentSerializer, as_data
from specs.kinds import TemplateSpecRequest
from specs.launch_templates import services
from specs.launch_templates.bodies import ParameterBody, TemplateBody
from specs.models import LaunchTemplate, TemplateVersion


class TemplateQuery(serializers.Serializer[Any]):
    """Which templates are listed."""

    q = serializers.CharField(required=False, max_length=100, help_text="Part of the name or description")
    name = serializers.CharField(required=False, max_length=100)


class TemplateVersionSerializer(ShownSerializer[TemplateVersion]):
    """A version of a template."""

    author = serializers.EmailField(
        source="author.email", default=None, allow_null=True, help_text="null: the account is gone"
    )

    class Meta:
        model = TemplateVersion
        fields: tuple[str, ...] = ("number", "author", "created_at")


class TemplateVersionDetailSerializer(TemplateVersionSerializer):
    """A version of a template, with what it says."""

    parameters = serializers.SerializerMethodField()
    spec = serializers.CharField(source="text", help_text="As a spec file")

    class Meta(TemplateVersionSerializer.Meta):
        fields = (*TemplateVersionSerializer.Meta.fields, "parameters", "spec")

    @extend_schema(responses=ParameterBody(many=True))
    def get_parameters(self, version: TemplateVersion) -> list[dict[str, Any]]:
        """Return the parameters."""
        found = services.content_of(version).get("parameters", ())
        return [{**dict.fromkeys(ParameterBody().fields), **each} for each in found]


class TemplateSerializer(ShownSerializer[LaunchTemplate]):
    """A launch template."""

    owner = serializers.EmailField(
        source="owner.email", default=None, allow_null=True, help_text="null: of a project or everybody"
    )
    project = serializers.CharField(source="project.name", default=None, allow_null=True)
    everybody = serializers.BooleanField(source="is_for_everybody")

    class Meta:
        model = LaunchTemplate
        fields: tuple[str, ...] = (
            *("id", "name", "description", "icon", "color", "kind", "owner", "project", "everybody"),
            *("version", "launches", "created_at", "updated_at"),
        )


class TemplateDetailSerializer(TemplateSerializer):
    """A launch template with what its current version says."""

    current = TemplateVersionDetailSerializer()

    class Meta(TemplateSerializer.Meta):
        fields = (*TemplateSerializer.Meta.fields, "current")


class TemplateLaunchBody(StrictSerializer):
    """A launch of a template."""

    values = serializers.DictField(default=dict, help_text="Of the parameters, by their names")
    version = serializers.IntegerField(default=None, allow_null=True, help_text="null: the current one")
    dry_run = serializers.BooleanField(default=False, help_text="Only say what would be made, and when it would start")


class CurrentVersionBody(StrictSerializer):
    """Which version is launched from now on."""

    version = serializers.IntegerField()


class TemplateChangedError(APIException):
    """The template is not what the caller has read."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = "The template has changed since you read it: read it again."


class LaunchTemplateViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[LaunchTemplate]):
    """The templates that the caller may launch, those that are launched most first."""

    queryset = LaunchTemplate.objects.all()
    serializer_class = TemplateSerializer
    lookup_value_regex = SESSION_ID
    query_serializers: ClassVar = {"list": TemplateQuery}
    http_method_names = ("get", "head", "options", "post", "patch", "delete")

    def get_queryset(self) -> QuerySet[LaunchTemplate]:
        """Return those that the caller may launch, or change where that is asked for."""
        user, query = user_of(self.request), getattr(self, "query", {})
        may_read = self.action in ("list", "retrieve", "versions", "version", "launch")
        found = LaunchTemplate.objects.visible_to(user) if may_read else LaunchTemplate.objects.editable_by(user)
        if text := query.get("q"):
            found = found.filter(Q(name__icontains=text) | Q(description__icontains=text))
        if name := query.get("name"):
            found = found.filter(name=name)
        return found.select_related("owner", "project")

    @extend_schema(request=TemplateBody, responses={201: TemplateDetailSerializer})
    def create(self, request: Request) -> Response:
        """Make a template. Its name is new among one's own, those of the project, or everybody's."""
        made = TemplateSpecRequest(user_of(request), _fields(request)).save()
        return Response(TemplateDetailSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses=TemplateDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Show a template, with what it says and asks for."""
        return Response(TemplateDetailSerializer(self.get_object()).data)

    @extend_schema(
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag that was read")],
        request=TemplateBody,
        responses={
            200: TemplateDetailSerializer,
            412: OpenApiResponse(description="The template is not what the caller has read"),
        },
    )
    @transaction.atomic
    def partial_update(self, request: Request, pk: str) -> Response:
        """Make a version in which what is left out stays as it is, and launch that from now on."""
        template = self.get_object()
        services.lock(template)
        if (read := request.headers.get("If-Match", "*")) != "*":
            shown = JSONRenderer().render(TemplateDetailSerializer(template).data)
            if read != etag_of(shown):
                raise TemplateChangedError
        fields = services.holder_fields(template) | services.content_of(template.current)
        changed = TemplateSpecRequest(user_of(request), fields | _fields(request)).save(template)
        return Response(TemplateDetailSerializer(changed).data)

    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a template with its versions; what was launched from it goes on."""
        services.delete(self.get_object(), actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=TemplateVersionSerializer(many=True))
    @action(detail=True)
    def versions(self, request: Request, pk: str) -> Response:
        """List the versions, the newest first."""
        return self.page_of(self.get_object().versions.select_related("author"), TemplateVersionSerializer)

    @extend_schema(responses=TemplateVersionDetailSerializer)
    @action(detail=True, url_path=r"versions/(?P<number>[0-9]{1,9})")
    def version(self, request: Request, pk: str, number: str) -> Response:
        """Show a version with what it says."""
        return Response(TemplateVersionDetailSerializer(self._version(self.get_object(), int(number))).data)

    @extend_schema(request=CurrentVersionBody, responses=TemplateDetailSerializer)
    @action(detail=True, methods=["post"], url_path="make-current")
    def make_current(self, request: Request, pk: str) -> Response:
        """Have another version be launched from now on."""
        template = self.get_object()
        version = self._version(template, valid_body(CurrentVersionBody, request)["version"])
        services.make_current(template, version, actor=user_of(request))
        return Response(TemplateDetailSerializer(template).data)

    @extend_schema(request=TemplateLaunchBody, responses={200: SpecDocumentSerializer, 201: SpecDocumentSerializer})
    @action(detail=True, methods=["post"])
    def launch(self, request: Request, pk: str) -> Response:
        """Launch a template with these values, or say what that would be (200)."""
        template, asked = self.get_object(), valid_body(TemplateLaunchBody, request)
        version = template.current if asked["version"] is None else self._version(template, asked["version"])
        outcome = template_launches.launch(user_of(request), version, asked["values"], is_dry=asked["dry_run"])
        made = status.HTTP_200_OK if asked["dry_run"] else status.HTTP_201_CREATED
        return Response(SpecDocumentSerializer(as_data(outcome)).data, status=made)

    @staticmethod
    def _version(template: LaunchTemplate, number: int) -> TemplateVersion:
        """Return a version of the template. Raises Http404."""
        versions = template.versions.select_related("template", "author")
        return get_object_or_404(versions, number=min(max(number, 0), 2**31 - 1))


def _fields(request: Request) -> dict[str, Any]:
    """Return the body's fields. Raises ValidationError where it has none."""
    if not isinstance(request.data, dict):
        raise ValidationError([_("Write an object with named fields.")])
    return request.data
