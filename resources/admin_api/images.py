"""API of images with their apps, and of registries."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.core.exceptions import ValidationError as InvalidModelError
from django.db import transaction
from django.db.models import Count, QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api import user_of
from accounts.models import User
from resources.admin_api.base import NotPossibleError, RecordViewSet, SearchQuery
from resources.admin_api.serializers import RecordSerializer
from resources.forms import ImageForm, RegistryForm
from resources.image_admin import APP_ICONS
from resources.images import builds, pulls
from resources.models import App, BuildState, Host, HostStatus, Image, ImageBuild, ImagePull, Registry
from restapi.fields import RowNameField, ShownSerializer
from restapi.views import valid_body

NOT_NOW = OpenApiResponse(description="There is nothing to do; the detail says why")


class AppRecordSerializer(RecordSerializer[App]):
    """An app of an image: how sessions start it, and when it is ready."""

    icon = serializers.ChoiceField(choices=APP_ICONS, allow_blank=True, required=False)

    class Meta:
        model = App
        exclude = ("id", "image")


class ImageBuildSerializer(ShownSerializer[ImageBuild]):
    """How far the build of an image of the catalogue is."""

    class Meta:
        model = ImageBuild
        fields = ("state", "is_usable", "step", "steps", "problem")


class ImagePullSerializer(ShownSerializer[ImagePull]):
    """How far the last pull of an image to a host is that an administrator asked for."""

    host = serializers.CharField(source="host.name", read_only=True)

    class Meta:
        model = ImagePull
        fields = ("host", "state", "detail", "requested_at")


class ImageRecordSerializer(RecordSerializer[Image]):
    """An image that sessions may run. `apps` replaces all of its apps."""

    owner = RowNameField[User](
        slug_field="email",
        queryset=User.objects.all(),
        required=False,
        allow_null=True,
        help_text="Who alone may use it; null: everybody",
    )
    apps = AppRecordSerializer(many=True, required=False)
    build = ImageBuildSerializer(read_only=True, allow_null=True, default=None)
    pulls = ImagePullSerializer(many=True, read_only=True)
    on_hosts = serializers.IntegerField(source="on_hosts_count", read_only=True, help_text="Hosts that have it")

    class Meta:
        model = Image
        fields = (
            *("id", *ImageForm.Meta.fields, "apps", "source", "size", "enable_hint", "is_local", "on_hosts"),
            *("build", "pulls", "created_at"),
        )
        read_only_fields = ("id", "source", "size", "enable_hint", "is_local", "created_at")


class ImageRecordQuery(SearchQuery):
    """Which images to list."""

    is_enabled = serializers.BooleanField(required=False)
    environment = serializers.CharField(max_length=64, required=False)
    owner = serializers.EmailField(required=False)


class PullRequestSerializer(serializers.Serializer[Any]):
    """Onto which hosts to pull an image."""

    hosts = RowNameField[Host](
        slug_field="name",
        many=True,
        required=False,
        queryset=Host.objects.all(),
        help_text="Names; all that are ready if left out",
    )


class ImageRecordViewSet(RecordViewSet[Image]):
    """Images, those of users included."""

    queryset = Image.objects.filter(removed_at=None)
    serializer_class = ImageRecordSerializer
    form_class = ImageForm
    is_scheduled = True
    query_serializers: ClassVar = {"list": ImageRecordQuery}
    search_fields = ("environment", "version", "reference", "description")
    filters: ClassVar = {"is_enabled": "is_enabled", "environment": "environment", "owner": "owner__email__iexact"}

    def get_queryset(self) -> QuerySet[Image]:
        """Return the images with what their serializer needs; three queries for any number."""
        images = super().get_queryset().select_related("owner", "build").prefetch_related("apps", "pulls__host")
        return images.annotate(on_hosts_count=Count("on_hosts")).order_by("environment", "version", "pk")

    def related(self, instance: Image, values: Mapping[str, Any]) -> Iterable[App]:
        """Return its apps."""
        return instance.apps.all()

    def finish(self, row: Image, values: Mapping[str, Any]) -> None:
        """Replace the apps of the image."""
        if "apps" in values:
            _replace_apps(row, values["apps"])

    @extend_schema(request=None, responses={200: ImageRecordSerializer, 409: NOT_NOW})
    @action(detail=True, methods=["post"], url_path="build")
    def build_again(self, request: Request, pk: str) -> Response:
        """Queue a build that failed again."""
        image = self.get_object()
        with transaction.atomic():
            if not builds.retry(Image.objects.filter(pk=image.pk)):
                raise NotPossibleError(_("The image has no build that failed."))
            changes = {"build": (str(BuildState.FAILED.value), str(BuildState.QUEUED.value))}
            audit.record(user_of(request), "build_again", image, changes)
        return self.shown(image)

    @extend_schema(request=PullRequestSerializer, responses={200: ImageRecordSerializer, 409: NOT_NOW})
    @action(detail=True, methods=["post"], url_path="pull")
    def pull(self, request: Request, pk: str) -> Response:
        """Have host workers pull the image; `pulls` says how far each is."""
        image = self.get_object()
        asked = valid_body(PullRequestSerializer, request)
        if not pulls.can_be_pulled(image):
            raise NotPossibleError(_("No registry has what is built here or made from a session."))
        hosts = asked.get("hosts")
        chosen = list(Host.objects.filter(status=HostStatus.READY)) if hosts is None else hosts
        with transaction.atomic():
            pulls.request(image, chosen)
            names = ", ".join(host.name for host in chosen)
            audit.record(user_of(request), "pull", image, {"hosts": (None, names)})
        return self.shown(image)


def _replace_apps(image: Image, apps: Iterable[Mapping[str, Any]]) -> None:
    """Store these apps of the image, and no others. Raises ValidationError."""
    known = {app.name: app for app in image.apps.all()}
    errors: dict[str, Any] = {}
    image.apps.exclude(name__in=[values["name"] for values in apps]).delete()
    for index, values in enumerate(apps):
        app = known.pop(values["name"], None) or App(image=image)
        for name, value in values.items():
            setattr(app, name, value)
        try:
            app.full_clean()
        except InvalidModelError as error:
            errors[str(index)] = error.message_dict
            continue
        app.save()
    if errors:
        raise ValidationError({"apps": errors})


class RegistryRecordSerializer(RecordSerializer[Registry]):
    """A registry that hosts pull from; its password can be set, but never read."""

    password = serializers.CharField(
        write_only=True, required=False, allow_blank=True, max_length=4096, trim_whitespace=False
    )
    has_password = serializers.SerializerMethodField()

    class Meta:
        model = Registry
        fields = ("id", "name", "address", "username", "password", "has_password", "is_push_target", "allows_http")

    def get_has_password(self, registry: Registry) -> bool:
        """Return whether a password is stored."""
        return bool(registry.encrypted_password)


class RegistryRecordViewSet(RecordViewSet[Registry]):
    """Registries."""

    queryset = Registry.objects.order_by("name")
    serializer_class = RegistryRecordSerializer
    form_class = RegistryForm
    search_fields = ("name", "address")
