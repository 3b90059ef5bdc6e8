"""Administration of images and their apps, and of registries."""

from typing import Any, cast

from django.contrib import admin, messages
from django.db import models
from django.db.models import Count, QuerySet
from django.forms import Field, Select
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext

from accounts import audit
from accounts.models import User
from resources.amounts.admin_columns import AmountsAdmin, fgpu_column, memory_column, value_column
from resources.forms import ImageForm, RegistryForm
from resources.images import builds, pulls
from resources.models import (
    App,
    BuildState,
    Host,
    HostStatus,
    Image,
    Registry,
)
from translation.english import from_english

APP_ICONS = ("notebook", "lab", "chart", "flask", "terminal", "book", "globe", "gpu", "layers")


class AppInline(admin.StackedInline[App, Image]):
    """The apps that sessions of the image have."""

    model = App
    extra = 0

    def formfield_for_dbfield(self, db_field: models.Field[Any, Any], request: Any, **kwargs: Any) -> Field | None:
        """Return the form field; that of the icon is a choice, with the plug for none."""
        if db_field.name == "icon":
            kwargs["widget"] = Select(choices=[("", gettext("plug")), *((name, name) for name in APP_ICONS)])
        return super().formfield_for_dbfield(db_field, request, **kwargs)


class ImageAdmin(AmountsAdmin):
    """The images that sessions may run; any OCI image that the hosts have or can pull."""

    form = ImageForm
    list_display = (
        *("environment", "version", "reference", "owner", "is_enabled", "build_state"),
        *(value_column("host_count", "on hosts"), "min_cpu"),
        *(memory_column("min_memory", "least memory"), fgpu_column("min_fgpu", "least fGPU")),
    )
    list_filter = ("is_enabled", "build__state", "environment")
    list_select_related = ("build", "owner")
    raw_id_fields = ("owner",)
    list_display_links = ("environment", "version")
    search_fields = ("environment", "version", "reference", "description")
    readonly_fields = ("enable_hint", "build_state", "build_problem")
    inlines = (AppInline,)
    actions = ("enable", "build_again", "pull")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Image]:
        """Return the images with the number of hosts that have each."""
        images: QuerySet[Image] = super().get_queryset(request)
        return images.annotate(host_count=Count("on_hosts"))

    @admin.action(description="Pull selected images to all ready hosts", permissions=["change"])
    def pull(self, request: HttpRequest, images: QuerySet[Image]) -> None:
        """Have the host workers pull the images that a registry has."""
        hosts = list(Host.objects.filter(status=HostStatus.READY))
        pulled = [image for image in images if pulls.can_be_pulled(image)]
        for image in pulled:
            pulls.request(image, hosts)
            audit.record(cast(User, request.user), "pull", image, {"hosts": (None, audit.as_text("hosts", hosts))})
        if left := len(images) - len(pulled):
            text = ngettext(
                "%(count)s image left out: no registry has what is built here or made from a session.",
                "%(count)s images left out: no registry has what is built here or made from a session.",
                left,
            )
            self.message_user(request, text % {"count": left}, messages.WARNING)
        if pulled:
            text = ngettext(
                "%(count)s image will be pulled; ready hosts: %(hosts)s.",
                "%(count)s images will be pulled; ready hosts: %(hosts)s.",
                len(pulled),
            )
            self.message_user(request, text % {"count": len(pulled), "hosts": len(hosts)}, messages.SUCCESS)

    @admin.display(description="build", ordering="build__state")
    def build_state(self, image: Image) -> str:
        """Return how far the build of the image is."""
        build = builds.build_of(image)
        if build is None:
            return "-"
        if not image.is_enabled and build.state == BuildState.QUEUED:
            return gettext("waits until it is enabled")
        if build.state == BuildState.BUILDING and build.steps:
            return gettext("building, step %(step)s of %(steps)s") % {"step": build.step, "steps": build.steps}
        return from_english(str(BuildState(build.state).label))

    @admin.display(description="why the build failed")
    def build_problem(self, image: Image) -> str:
        """Return the failed command and the last lines of its output."""
        build = builds.build_of(image)
        return format_html("<pre>{}</pre>", build.problem) if build and build.problem else "-"

    @admin.action(description="Enable selected images", permissions=["change"])
    def enable(self, request: HttpRequest, images: QuerySet[Image]) -> None:
        """Enable the images, and say which of them are built first."""
        enabled = images.filter(is_enabled=False).update(is_enabled=True)
        building = images.filter(build__state__in=builds.ACTIVE).count()
        text = ngettext("%(count)s image enabled.", "%(count)s images enabled.", enabled) % {"count": enabled}
        if building:
            to_build = gettext(
                "%(count)s will be built by the image builder, which `make up` runs; the launch page shows how far."
            )
            text = f"{text} {to_build % {'count': building}}"
        self.message_user(request, text, messages.SUCCESS)

    @admin.action(description="Build selected images again whose build failed", permissions=["change"])
    def build_again(self, request: HttpRequest, images: QuerySet[Image]) -> None:
        """Queue the failed builds again."""
        if queued := builds.retry(images):
            text = ngettext(
                "%(count)s image will be built by the image builder, which `make up` runs.",
                "%(count)s images will be built by the image builder, which `make up` runs.",
                queued,
            )
            self.message_user(request, text % {"count": queued}, messages.SUCCESS)
        else:
            text = gettext("None of these images has a build that failed.")
            self.message_user(request, text, messages.WARNING)


class RegistryAdmin(admin.ModelAdmin[Registry]):
    """Registries that need a login, and the one to which images made from sessions are pushed."""

    form = RegistryForm
    fields = ("name", "address", "username", "password", "is_push_target", "allows_http")
    list_display = ("name", "address", "username", "has_password", "is_push_target")
    search_fields = ("name", "address")

    @admin.display(description="password", boolean=True)
    def has_password(self, registry: Registry) -> bool:
        """Return whether a password is stored."""
        return bool(registry.encrypted_password)
