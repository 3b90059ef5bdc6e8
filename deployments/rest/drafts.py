"""API of drafts: what a folder proposes for a deployment, to be sent back as the body of one."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from deployments.definitions import services
from deployments.definitions.drafts import DefinitionError, Draft
from deployments.models import HealthKind
from deployments.rest.bodies import number
from folders.models import Folder
from resources.amounts.fields import FgpuTextField
from restapi.views import ApiView
from sessions.launching.mounts import folders_named


class DraftsQuery(serializers.Serializer[Any]):
    """Query parameters of drafts."""

    folder = serializers.RegexField(r"^[A-Za-z0-9._-]+\Z", max_length=64, help_text="Its id, or the name of your own")
    path = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=4096,
        trim_whitespace=False,
        help_text="A directory in the folder with models of MLflow; the definition file is read at the top alone",
    )


class DraftHealthSerializer(serializers.Serializer[Any]):
    """The health check of a draft, as far as there is one."""

    kind = serializers.ChoiceField(choices=HealthKind.values, required=False)
    path = serializers.CharField(required=False)
    start_seconds = number("start_seconds")
    interval_seconds = number("interval_seconds")
    timeout_seconds = number("timeout_seconds")
    retries = number("retries")


class DraftMountSerializer(serializers.Serializer[Any]):
    """Where the folder of a draft is mounted."""

    folder = serializers.CharField(help_text="Its id")
    path = serializers.CharField(help_text="In the container")


class DraftRevisionSerializer(serializers.Serializer[Any]):
    """Fields of a deployment or a revision that a draft fills."""

    variant = serializers.CharField(required=False)
    command = serializers.CharField(required=False)
    port = serializers.IntegerField(required=False)
    env = serializers.DictField(source="environment", child=serializers.CharField(), required=False)
    cpu = serializers.IntegerField(required=False)
    memory = serializers.IntegerField(required=False, help_text="Bytes")
    fgpu = FgpuTextField(required=False)
    health = DraftHealthSerializer(required=False)
    note = serializers.CharField(required=False)
    model_folder = serializers.SerializerMethodField()

    @extend_schema_field(DraftMountSerializer)
    def get_model_folder(self, revision: dict[str, Any]) -> dict[str, str]:
        """Return the folder, and where it is mounted."""
        return {"folder": self.context["folder"].pk, "path": revision["model_path"]}


class DraftSerializer(serializers.Serializer[Draft]):
    """What one model in a folder proposes."""

    source = serializers.CharField(  # type: ignore[assignment]  # the metaclass collects it
        help_text="Path in the folder: the definition file, or the MLmodel file of MLflow"
    )
    name = serializers.CharField()
    run = serializers.CharField(help_text="Of MLflow: name or id of the run that stored it")
    flavors = serializers.ListField(child=serializers.CharField(), help_text="Of MLflow")
    created_at = serializers.DateTimeField(allow_null=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text="What could not be taken over")
    problem = serializers.CharField(help_text="Why it cannot be deployed; empty: it can")
    revision = serializers.SerializerMethodField(help_text="null where there is a problem")

    @extend_schema_field(DraftRevisionSerializer(allow_null=True))
    def get_revision(self, draft: Draft) -> Any:
        """Return what it fills."""
        return DraftRevisionSerializer(draft.revision, context=self.context).data if draft.revision else None


class FolderDraftsSerializer(serializers.Serializer[services.FolderDrafts]):
    """What a folder proposes."""

    drafts = DraftSerializer(many=True, help_text="Of the definition file first, then of MLflow, newest first")
    is_complete = serializers.BooleanField(help_text="false: there is more than is looked at; choose a directory")


class DeploymentDraftsView(ApiView):
    """What the files of a folder propose for a deployment."""

    query_serializers: ClassVar = {"get": DraftsQuery}

    @extend_schema(
        operation_id="deployment_drafts_retrieve",
        responses={
            200: FolderDraftsSerializer,
            400: OpenApiResponse(description="There is no such folder, or its definition file is wrong, by line"),
            404: OpenApiResponse(description="Nothing has this path"),
            503: OpenApiResponse(description="The folder's storage is not reachable here; the detail says where it is"),
        },
    )
    def get(self, request: Request) -> Response:
        """Read `model-definition.yaml` and the models of MLflow in a folder; nothing is made of them."""
        user, name = user_of(request), self.query["folder"]
        folder: Folder | None = folders_named(user, [name]).get(name)
        if folder is None:
            raise ValidationError({"folder": [f"There is no folder {name!r} of yours; others are named by their id."]})
        try:
            found = services.drafts_of(user, folder, self.query["path"])
        except DefinitionError as error:
            messages = [f"{error.source}, {mistake}" for mistake in error.mistakes]
            raise ValidationError({"definition": messages}) from None
        return Response(FolderDraftsSerializer(found, context={"folder": folder}).data)
