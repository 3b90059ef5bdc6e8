"""API of imports and import credentials."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.models import User
from imports import credentials, services
from imports.models import CredentialKind, Import, ImportCredential, ImportState
from imports.requests import ImportRequest
from imports.serializers import (
    ImportCredentialSerializer,
    ImportLaunchSerializer,
    ImportSerializer,
    LaunchedSessionSerializer,
    LaunchOptionsSerializer,
    NewImportCredentialSerializer,
    NewImportSerializer,
)
from restapi.views import ApiViewSet, valid_body
from sessions.api import by_request_field
from sessions.launching.mounts import folders_named
from sessions.launching.serializers import group_for, project_for
from sessions.models import SESSION_ID, Session


class ImportViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[Import]):
    """The caller's imports and looks, newest first; superadmins see everybody's."""

    queryset = Import.objects.all()
    serializer_class = ImportSerializer
    lookup_value_regex = SESSION_ID

    def get_queryset(self) -> QuerySet[Import]:
        """Return those that the caller may see; what launches is for the owner alone."""
        user = user_of(self.request)
        visible = Import.objects.filter(owner=user) if self.action == "launch" else Import.objects.visible_to(user)
        return visible.select_related("owner__policy", "folder__root", "session__host")

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, Any]:
        """Return them by field of a launch."""
        return by_request_field(errors, self.request.data if self.action == "launch" else {"image": ""})

    @extend_schema(request=NewImportSerializer, responses={201: ImportSerializer})
    def create(self, request: Request) -> Response:
        """Begin to look at what is at an address, or to fetch it into a folder or a session."""
        owner, asked = user_of(request), valid_body(NewImportSerializer, request)
        is_look = not any(asked.get(name) for name in ("folder", "folder_name", "session"))
        made = (services.look if is_look else services.begin)(owner, _import_request(owner, asked))
        return Response(ImportSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=ImportSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End an import; what was fetched by then is removed. Without effect once it has ended."""
        import_ = self.get_object()
        services.cancel(import_, actor=user_of(request))
        return Response(ImportSerializer(import_).data)

    @extend_schema(responses=LaunchOptionsSerializer)
    @action(detail=True, url_path="options")
    def launch_options(self, request: Request, pk: str) -> Response:
        """Show what a finished import, or a look, proposes for a session."""
        import_ = self.get_object()
        if import_.state != ImportState.DONE:
            raise ValidationError({"non_field_errors": ["The import is not done."]})
        options = services.launch_options(import_)
        mounts = [
            {"folder": each.folder.pk, "path": each.path, "read_only": each.is_read_only} for each in options.mounts
        ]
        return Response(LaunchOptionsSerializer(replace(options, mounts=mounts)).data)  # type: ignore[arg-type]

    @extend_schema(request=ImportLaunchSerializer, responses={201: LaunchedSessionSerializer(many=True)})
    @action(detail=True, methods=["post"])
    def launch(self, request: Request, pk: str) -> Response:
        """Launch sessions with what was imported, and install the packages that it names."""
        import_, body = self.get_object(), ImportLaunchSerializer(data=request.data, context={"request": request})
        body.is_valid(raise_exception=True)
        asked = body.launch_request()
        if "mounts" not in body.initial_data and import_.state == ImportState.DONE:
            asked = replace(asked, mounts=services.launch_options(import_).mounts)
        made = services.launch(user_of(request), import_, asked, installs=body.validated_data["installs"])
        return Response(LaunchedSessionSerializer(made, many=True).data, status=status.HTTP_201_CREATED)


class ImportCredentialViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[ImportCredential]):
    """The caller's tokens and SSH keys for hosts of repositories; no response has their secrets."""

    queryset = ImportCredential.objects.all()
    serializer_class = ImportCredentialSerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[ImportCredential]:
        """Return the caller's own."""
        return super().get_queryset().filter(owner=user_of(self.request))

    @extend_schema(request=NewImportCredentialSerializer, responses={201: ImportCredentialSerializer})
    def create(self, request: Request) -> Response:
        """Store a token, or an SSH key; without `private_key` one is made, whose `public_key` is added at the host."""
        asked = valid_body(NewImportCredentialSerializer, request)
        add = credentials.add_token if asked.pop("kind") == CredentialKind.TOKEN else credentials.add_key
        if add is credentials.add_token:
            asked.setdefault("token", "")
        made = add(user_of(request), **asked)
        return Response(ImportCredentialSerializer(made).data, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: ImportCredential) -> None:
        """Delete the credential."""
        credentials.delete(instance)


def _import_request(owner: User, asked: dict[str, Any]) -> ImportRequest:
    """Return the request with the rows that it names. Raises ValidationError for what the owner does not have."""
    values = {name: value for name, value in asked.items() if value not in (None, "")}
    project = project_for(owner, values.pop("project", None))
    found: dict[str, Any] = {"project": project}
    if "resource_group" in values:
        found["resource_group"] = group_for(owner, values.pop("resource_group"), project)
    if "folder" in values:
        found["folder"] = folders_named(owner, {values["folder"]}).get(values.pop("folder"))
    if "session" in values:
        found["session"] = Session.objects.filter(owner=owner, pk=values.pop("session")).first()
    if "credential" in values:
        found["credential"] = ImportCredential.objects.filter(owner=owner, pk=values.pop("credential")).first()
    if missing := [name for name, row in found.items() if row is None and name != "project"]:
        raise ValidationError({name: [f"You have no such {name}."] for name in missing})
    return ImportRequest(**values, **found)
