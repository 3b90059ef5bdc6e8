"""API of storage roots for superadmins."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, QuerySet, Sum
from django.forms import modelform_factory
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api import user_of
from folders.files.roots import NotEmptyError
from folders.models import HostRoot, StorageRoot
from folders.storage import paths as storage
from folders.storage import roots
from resources.admin_api.base import NotPossibleError, RecordViewSet
from resources.admin_api.serializers import RecordSerializer
from restapi.fields import ShownSerializer
from translation.english import from_english

REFUSED = OpenApiResponse(description="The directory is not there, or not empty; the detail says it")


class HostRootSerializer(ShownSerializer[HostRoot]):
    """What a host last found at the path of a root."""

    host = serializers.CharField(source="host.name", read_only=True)

    class Meta:
        model = HostRoot
        fields = ("host", "is_present", "problem", "quota_support", "total_bytes", "free_bytes", "checked_at")


class StorageRootRecordSerializer(RecordSerializer[StorageRoot]):
    """A directory that holds data folders. Once it has folders, it stays where it is."""

    folders = serializers.IntegerField(source="count_of_folders", read_only=True, help_text="How many it holds")
    used_bytes = serializers.IntegerField(source="bytes_of_folders", read_only=True, help_text="That its folders take")
    on_hosts = HostRootSerializer(many=True, read_only=True)

    class Meta:
        model = StorageRoot
        fields = (
            *("id", "name", "path", "is_shared", "is_enabled", "is_default", "key", "folders", "used_bytes"),
            "on_hosts",
        )
        read_only_fields = ("id", "is_default", "key")


class StorageRootRecordViewSet(RecordViewSet[StorageRoot]):
    """Storage roots."""

    queryset = StorageRoot.objects.all()
    serializer_class = StorageRootRecordSerializer
    form_class = modelform_factory(StorageRoot, fields=("name", "path", "is_shared", "is_enabled"))
    search_fields = ("name", "path")

    def get_queryset(self) -> QuerySet[StorageRoot]:
        """Return the roots with number and size of their folders; two queries for any number."""
        totals = {"count_of_folders": Count("folders"), "bytes_of_folders": Sum("folders__used_bytes", default=0)}
        return super().get_queryset().prefetch_related("on_hosts__host").annotate(**totals).order_by("name")

    def check(self, instance: StorageRoot | None, values: Mapping[str, Any]) -> None:
        """Raise ValidationError where a root is to move whose folders exist."""
        if instance is None or not instance.folders.exists():
            return
        moved = [
            name
            for name in ("path", "is_shared")
            if values.get(name, getattr(instance, name)) != getattr(instance, name)
        ]
        if moved:
            raise ValidationError({name: [_("This cannot change once the root has folders.")] for name in moved})

    @extend_schema(request=None, responses=StorageRootRecordSerializer)
    @action(detail=True, methods=["post"], url_path="make-default")
    def make_default(self, request: Request, pk: str) -> Response:
        """Offer the root first for new folders."""
        root = self.get_object()
        with audit.act(user_of(request), "make_default", *StorageRoot.objects.all()):
            storage.make_default(root)
        return self.shown(root)

    @extend_schema(request=None, responses={200: StorageRootRecordSerializer, 409: REFUSED})
    @action(detail=True, methods=["post"], url_path="mark")
    def mark(self, request: Request, pk: str) -> Response:
        """Write the marker file into the root's directory on the web server's machine, which must be empty."""
        root = self.get_object()
        try:
            roots.mark(root)
        except (NotEmptyError, OSError) as error:
            raise NotPossibleError(from_english(str(error))) from error
        audit.record(user_of(request), "write_marker", root, {})
        return self.shown(root)
