"""API of data folders, their shares, and the storage roots on which they lie."""

from typing import Any, ClassVar

from django.db.models import Count, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.models import Project, User
from folders.models import FOLDER_ID, Folder, FolderQuerySet, StorageRoot
from folders.quotas import rules as quota
from folders.serializers import (
    ChangedFolderShareSerializer,
    FolderQuery,
    FolderSerializer,
    FolderShareSerializer,
    NewFolderSerializer,
    NewFolderShareSerializer,
    RenamedFolderSerializer,
    RestoredFolderSerializer,
    StorageRootSerializer,
)
from folders.sharing import folders as services
from folders.sharing.access import require_manager, require_owner
from folders.storage import paths as storage
from folders.storage import roots
from restapi.views import ApiViewSet, valid_body

CONFLICT = OpenApiResponse(description="Not now: in use, or in the trash; the detail says it")


class StorageRootViewSet(ListModelMixin, ApiViewSet[StorageRoot]):
    """Where folders are kept, which hosts have it, and what the caller uses there."""

    queryset = StorageRoot.objects.all()
    serializer_class = StorageRootSerializer

    def get_serializer_context(self) -> dict[str, Any]:
        """Return the context with what all roots need: four queries for any number, and one for each missing root."""
        context = dict(super().get_serializer_context())
        if getattr(self, "swagger_fake_view", False):
            return context
        user, found = user_of(self.request), list(self.get_queryset())
        no_use = quota.StorageUse(max_bytes=user.policy.storage_bytes, max_files=user.policy.storage_files)
        return context | {
            "hosts": roots.hosts_with(found),
            "problems": {root.pk: storage.unavailable_reason(root) for root in found},
            "uses": quota.storage_uses(user),
            "no_use": no_use,
        }


class FolderViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[Folder]):
    """The caller's data folders and those shared with the caller; superadmins see what there is, but no files."""

    queryset = Folder.objects.all()
    serializer_class = FolderSerializer
    lookup_value_regex = FOLDER_ID
    query_serializers: ClassVar = {"list": FolderQuery}

    def get_queryset(self) -> QuerySet[Folder]:
        """Return the folders visible to the caller with what their serializer needs; one query for any number."""
        user = user_of(self.request)
        visible: FolderQuerySet = Folder.objects.visible_to(user)
        if self.action == "list":
            visible = self._asked_for()
        related = visible.select_related("owner__policy", "project__policy", "root").with_rights_of(user)
        return related.annotate(share_count=Count("shares")).order_by("name", "id")

    def _asked_for(self) -> FolderQuerySet:
        """Return the folders that match the query string."""
        asked, user = self.query, user_of(self.request)
        found = Folder.objects.visible_to(user) if asked["scope"] == "all" else Folder.objects.readable_by(user)
        if asked["scope"] == "own":
            found = found.filter(owner=user)
        elif asked["scope"] == "shared":
            found = found.exclude(owner=user)
        found = found.live() if asked["state"] == "live" else found.trashed()
        return found.filter(name__icontains=asked["name"]) if "name" in asked else found

    @extend_schema(request=NewFolderSerializer, responses={201: FolderSerializer})
    def create(self, request: Request) -> Response:
        """Create a folder."""
        asked = valid_body(NewFolderSerializer, request)
        root = root_called(asked.get("root"))
        holder = holder_for(user_of(request), asked.get("project"))
        folder = services.create(holder, asked["name"], root)
        return self._shown(folder, status.HTTP_201_CREATED)

    @extend_schema(request=RenamedFolderSerializer, responses={200: FolderSerializer, 409: CONFLICT})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Rename the folder; for its owner. Sessions keep the path at which it is mounted."""
        folder = self.get_object()
        require_owner(user_of(request), folder)
        asked = valid_body(RenamedFolderSerializer, request)
        services.rename(folder, asked["name"])
        return self._shown(folder)

    @extend_schema(responses={204: None, 409: CONFLICT})
    def destroy(self, request: Request, pk: str) -> Response:
        """Move the folder to the trash; idempotent. For its owner and superadmins."""
        folder = self.get_object()
        require_manager(user_of(request), folder)
        services.trash(folder, actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=RestoredFolderSerializer, responses={200: FolderSerializer})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Take the folder out of the trash; does nothing if it is not in it."""
        folder = self.get_object()
        require_manager(user_of(request), folder)
        asked = valid_body(RestoredFolderSerializer, request)
        services.restore(folder, asked.get("name", ""), actor=user_of(request))
        return self._shown(folder)

    @extend_schema(request=None, responses={204: None, 409: CONFLICT})
    @action(detail=True, methods=["post"], url_path="delete-forever")
    def delete_forever(self, request: Request, pk: str) -> Response:
        """Delete a folder that is in the trash with all its files."""
        folder = self.get_object()
        require_manager(user_of(request), folder)
        services.delete_forever(folder, actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(methods=["GET"], responses=FolderShareSerializer(many=True))
    @extend_schema(
        methods=["POST"],
        request=NewFolderShareSerializer,
        responses={200: FolderShareSerializer, 409: CONFLICT},
    )
    @action(detail=True, methods=["get", "post"])
    def shares(self, request: Request, pk: str) -> Response:
        """List with whom the folder is shared, or share it with a user, whose rights may then be other than before."""
        folder = self.get_object()
        if request.method == "POST":
            require_owner(user_of(request), folder)
            data = valid_body(NewFolderShareSerializer, request)
            made = services.share(folder, data["user"], is_read_only=data["read_only"])
            return Response(FolderShareSerializer(made).data)
        require_manager(user_of(request), folder)
        return self.page_of(folder.shares.select_related("user").order_by("user__email"), FolderShareSerializer)

    @extend_schema(methods=["PATCH"], request=ChangedFolderShareSerializer, responses={200: FolderShareSerializer})
    @extend_schema(methods=["DELETE"], responses={204: None})
    @action(detail=True, methods=["patch", "delete"], url_path="shares/(?P<share_id>[0-9]{1,18})")
    def one_share(self, request: Request, pk: str, share_id: str) -> Response:
        """Change or withdraw a share; the user with whom it is may give it up."""
        folder, user = self.get_object(), user_of(request)
        share = get_object_or_404(folder.shares.select_related("user"), pk=share_id)
        if request.method == "DELETE":
            if share.user_id != user.pk:
                require_owner(user, folder)
            services.withdraw(share)
            return Response(status=status.HTTP_204_NO_CONTENT)
        require_owner(user, folder)
        asked = valid_body(ChangedFolderShareSerializer, request)
        changed = services.share(folder, share.user, is_read_only=asked["read_only"])
        return Response(FolderShareSerializer(changed).data)

    def _shown(self, folder: Folder, code: int = status.HTTP_200_OK) -> Response:
        """Return the response with the folder as it is now."""
        return Response(self.get_serializer(self.get_queryset().get(pk=folder.pk)).data, status=code)


def holder_for(user: User, project: str | None) -> User | Project:
    """Return the user, or the project of this name if they manage it. Raises ValidationError."""
    if project is None:
        return user
    found = Project.objects.managed_by(user).filter(name=project).select_related("policy").first()
    if found is None:
        raise ValidationError({"project": ["You manage no project of this name."]})
    return found


def root_called(name: str | None) -> StorageRoot | None:
    """Return the root of this name, None without a name. Raises ValidationError."""
    if name is None:
        return None
    root = StorageRoot.objects.filter(name=name).first()
    if root is None:
        raise ValidationError({"root": ["There is no storage root of this name."]})
    return root
