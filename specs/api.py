"""API of spec files."""

from types import MappingProxyType
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.models import User
from accounts.serializers import StrictSerializer
from deployments.models import Deployment
from resources.amounts.fields import FgpuTextField
from restapi.views import ApiView, valid_body
from scheduler.api import EstimateSerializer
from scheduler.api import as_data as estimate_data
from sessions.launching import dependencies
from sessions.launching.serializers import DependenciesField
from sessions.models import Session
from specs import export, services
from specs.documents import MAX_BYTES
from specs.formats import reading
from specs.formats.translation import OptionOutcome
from specs.json_schema import json_schema
from specs.kinds import KINDS
from specs.problems import SpecError
from specs.services import SpecOutcome
from specs.template_launches import origin_of
from specs.writing import spec_text


class NewSpecSerializer(StrictSerializer):
    """A spec file."""

    text = serializers.CharField(
        max_length=MAX_BYTES,
        trim_whitespace=False,
        help_text="YAML or JSON; several documents are one request. Also a script with #GP or #SBATCH lines, or a task "
        "file of SkyPilot or dstack",
    )
    image = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="For a script or task file that names none"
    )
    depends_on = DependenciesField(
        required=False, help_text="What the sessions of the file wait for besides: ids, or with a kind as after_any:ID"
    )
    dry_run = serializers.BooleanField(default=False, help_text="Only say what would be made, and when it would start")


class SpecDocumentSerializer(serializers.Serializer[Any]):
    """What became of a document, or would."""

    kind = serializers.ChoiceField(choices=list(KINDS))
    line = serializers.IntegerField(help_text="At which it begins")
    name = serializers.CharField(help_text="As it is written; empty without one")
    ids = serializers.ListField(child=serializers.CharField(), help_text="Of what was made; none of a dry run")
    resource_group = serializers.CharField(allow_null=True, help_text="In which its sessions start first")
    count = serializers.IntegerField(help_text="Sessions or replicas; 0 of a folder")
    cpu = serializers.IntegerField(allow_null=True, help_text="Of each, all members of a cluster together")
    memory = serializers.IntegerField(allow_null=True, help_text="Bytes")
    fgpu = FgpuTextField(allow_null=True)
    gpu_memory = serializers.IntegerField(help_text="Bytes, asked for in place of a share; 0: it is not")
    estimate = EstimateSerializer(allow_null=True, help_text="Of a dry run: when all would have started")


class TranslatedOptionSerializer(serializers.Serializer[Any]):
    """What became of an option of another system's file."""

    line = serializers.IntegerField(help_text="At which it stands")
    option = serializers.CharField(help_text="As it is written; empty for what is not said in the file")
    became = serializers.CharField(help_text="The field, with its value")
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in OptionOutcome])
    note = serializers.CharField(help_text="Why it is changed or left out")


class SpecResultSerializer(serializers.Serializer[Any]):
    """What became of a spec file."""

    dry_run = serializers.BooleanField()
    documents = SpecDocumentSerializer(many=True)
    translated = TranslatedOptionSerializer(many=True, help_text="Of a script or task file; empty for a spec file")
    spec = serializers.CharField(help_text="What a script or task file says, as a spec file; empty for a spec file")


class SpecsView(ApiView):
    """Carries out spec files."""

    @extend_schema(
        operation_id="specs_create",
        request=NewSpecSerializer,
        responses={200: SpecResultSerializer, 201: SpecResultSerializer},
    )
    def post(self, request: Request) -> Response:
        """Make what a spec file asks for, all or nothing, or say what that would be (200)."""
        asked = valid_body(NewSpecSerializer, request)
        is_dry = asked["dry_run"]
        after = dependencies.find(user_of(request), asked.get("depends_on", {}))
        result = carried_out(user_of(request), asked["text"], image=asked["image"], after=after, is_dry=is_dry)
        return Response(result, status=status.HTTP_200_OK if is_dry else status.HTTP_201_CREATED)


class SpecSerializer(serializers.Serializer[Any]):
    """A spec file."""

    spec = serializers.CharField()


class TemplateOriginSerializer(serializers.Serializer[Any]):
    """The template that something was launched from."""

    id = serializers.CharField(source="template_id", allow_null=True, help_text="null: it is deleted")
    name = serializers.CharField()
    version = serializers.IntegerField(source="number")


class SessionFileSerializer(SpecSerializer):
    """A session as a spec file."""

    template = TemplateOriginSerializer(allow_null=True, help_text="From which it was launched")


class SessionSpecView(ApiView):
    """Exports sessions."""

    @extend_schema(operation_id="sessions_spec_retrieve", responses=SessionFileSerializer)
    def get(self, request: Request, session_id: str) -> Response:
        """Return the session as a spec file, without the values of secrets; of a cluster, the whole."""
        sessions = Session.objects.visible_to(user_of(request)).mains().with_members()
        session = get_object_or_404(sessions.prefetch_related("mounts"), pk=session_id)
        found = {"spec": export.session_spec(session, user_of(request)).text, "template": origin_of(session)}
        return Response(SessionFileSerializer(found).data)


class DeploymentSpecView(ApiView):
    """Exports deployments."""

    @extend_schema(operation_id="deployments_spec_retrieve", responses=SpecSerializer)
    def get(self, request: Request, deployment_id: str) -> Response:
        """Return the deployment with its current revision as a spec file, without the values of secrets."""
        deployment = get_object_or_404(Deployment.objects.visible_to(user_of(request)), pk=deployment_id)
        return Response({"spec": export.deployment_spec(deployment, user_of(request)).text})


@require_safe
@cache_control(public=True, max_age=3600)
def schema(request: HttpRequest) -> JsonResponse:
    """Send the JSON Schema of spec files, by which editors complete and check them."""
    return JsonResponse(json_schema(), content_type="application/schema+json")


def carried_out(
    owner: User, text: str, *, image: str = "", after: dependencies.Dependencies = MappingProxyType({}), is_dry: bool
) -> dict[str, Any]:
    """Carry a spec file out and return the response. Raises ValidationError, by line and field."""
    try:
        file = reading.read(owner, text, image)
        outcomes = services.carry_out(owner, file.documents, is_dry=is_dry, after=after)
    except SpecError as error:
        found: dict[str, list[str]] = {}
        for problem in error.problems:
            found.setdefault(problem.place, []).append(problem.message)
        raise ValidationError(found) from error
    result = {
        "dry_run": is_dry,
        "documents": [as_data(each) for each in outcomes],
        "translated": [each._asdict() for each in file.options],
        "spec": spec_text((each.kind, each.fields) for each in file.documents) if file.is_translated else "",
    }
    return SpecResultSerializer(result).data


def as_data(outcome: SpecOutcome) -> dict[str, Any]:
    """Return what became of a document as `SpecDocumentSerializer` shows it."""
    asked = outcome.launched_as
    return {
        "kind": outcome.document.kind,
        "line": outcome.document.source.line,
        "name": outcome.document.name,
        "ids": outcome.ids,
        "resource_group": asked and asked.resource_group.name,
        "count": asked.count if asked else 0,
        **{name: asked and getattr(asked.together, name) for name in ("cpu", "memory", "fgpu")},
        "gpu_memory": asked.gpu_memory if asked else 0,
        "estimate": outcome.estimate and estimate_data(outcome.estimate),
    }
