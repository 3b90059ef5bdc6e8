"""Administration of deployments: all but runtime variants is shown, and a deployment can be ended."""

from collections.abc import Sequence
from typing import Any, cast

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from accounts.admin import ReadOnlyMixin, ShownInline
from accounts.confirmation import confirmed
from accounts.models import User
from deployments import services
from deployments.models import (
    Deployment,
    DeploymentEvent,
    DeploymentToken,
    Replica,
    Revision,
    RevisionMount,
    RuntimeVariant,
    ScalingRule,
    TokenUsage,
)
from resources.amounts.admin_columns import fgpu_column, memory_column


class ShownAdmin(ReadOnlyMixin, admin.ModelAdmin[Any]):
    """A read-only admin for rows that only services write."""

    hidden: tuple[str, ...] = ()

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the fields of the row."""
        return [field.name for field in self.opts.fields if field.name not in self.hidden]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the same, in their order."""
        return self.get_readonly_fields(request, obj)


def _owners(deployments: Sequence[Deployment]) -> list[User]:
    return [deployment.owner for deployment in deployments]


class RevisionInline(ShownInline):
    """The revisions of a deployment."""

    model = Revision
    fk_name = "deployment"
    fields = readonly_fields = ("number", "image", "variant", "port", "cpu", "created_by", "created_at", "note")
    related = ("image", "variant", "created_by", "deployment")


class ReplicaInline(ShownInline):
    """The replicas of a deployment, with those that have ended."""

    model = Replica
    fields = readonly_fields = (
        "session",
        "revision",
        "health",
        "health_detail",
        "draining_since",
        "failure",
        "created_at",
    )
    related = ("session__cluster", "revision", "deployment")


class ScalingRuleInline(ShownInline):
    """The rules by which a deployment is scaled."""

    model = ScalingRule
    fields = readonly_fields = ("metric", "target", "query", "is_paused")


class TokenInline(ShownInline):
    """The tokens of a deployment, without their secrets."""

    model = DeploymentToken
    fields = readonly_fields = (
        "name",
        "created_by",
        "created_at",
        "expires_at",
        "revoked_at",
        "last_used_at",
        "rate_per_minute",
        "monthly_requests",
        "monthly_tokens",
    )
    related = ("created_by",)


class TokenUsageInline(ShownInline):
    """What a token has used, by month."""

    model = TokenUsage
    fields = readonly_fields = ("month", "requests", "prompt_tokens", "completion_tokens")


class DeploymentEventInline(ShownInline):
    """What was done with a deployment."""

    model = DeploymentEvent
    fields = readonly_fields = ("at", "what", "actor")
    related = ("actor",)


class RevisionMountInline(ShownInline):
    """The folders of a revision."""

    model = RevisionMount
    fields = readonly_fields = ("folder_name", "path", "is_read_only", "is_model")
    related = ("folder",)


@admin.register(Deployment)
class DeploymentAdmin(ShownAdmin):
    """Deployments of all users; they are changed on their pages."""

    list_display = ("name", "id", "owner", "project", "state", "replicas", "is_public", "created_at", "ended_at")
    list_filter = ("state", "is_public", "resource_group")
    list_select_related = ("owner", "project")
    search_fields = ("name", "id", "owner__email", "project__name")
    date_hierarchy = "created_at"
    inlines = (RevisionInline, ReplicaInline, ScalingRuleInline, TokenInline, DeploymentEventInline)
    actions = ("end",)

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Return whether the user is a superadmin, who may end what is everybody's."""
        return bool(request.user.is_superuser)

    @admin.action(description="End selected deployments with their replicas", permissions=["end"])
    @confirmed(_("Their addresses serve no more, and their replicas are ended. This cannot be undone."), _owners)
    def end(self, request: HttpRequest, queryset: QuerySet[Deployment]) -> None:
        """End these deployments; those that have ended stay so."""
        chosen = list(queryset.filter(ended_at=None))
        for deployment in chosen:
            services.end(deployment, actor=cast(User, request.user))
        text = ngettext("%(count)s deployment is ended.", "%(count)s deployments are ended.", len(chosen))
        self.message_user(request, text % {"count": len(chosen)}, messages.SUCCESS)


@admin.register(Revision)
class RevisionAdmin(ShownAdmin):
    """Revisions, which never change."""

    list_display = ("__str__", "image", "cpu", memory_column("memory", "memory"), fgpu_column("fgpu", "fGPU"), "port")
    list_filter = ("variant",)
    list_select_related = ("image", "deployment")
    search_fields = ("deployment__name", "deployment__id", "image__reference")
    hidden = ("command", "environment")  # which may hold secrets
    inlines = (RevisionMountInline,)


@admin.register(Replica)
class ReplicaAdmin(ShownAdmin):
    """Replicas, each a session."""

    list_display = ("session", "deployment", "revision", "health", "health_detail", "draining_since", "created_at")
    list_filter = ("health",)
    list_select_related = ("session__cluster", "deployment", "revision")
    search_fields = ("session__id", "deployment__name", "deployment__id")


@admin.register(DeploymentToken)
class DeploymentTokenAdmin(ShownAdmin):
    """Tokens, without their secrets."""

    list_display = (
        *("name", "deployment", "created_by", "expires_at", "revoked_at", "last_used_at", "rate_per_minute"),
        *("monthly_requests", "monthly_tokens"),
    )
    list_select_related = ("deployment", "created_by")
    search_fields = ("name", "deployment__name", "deployment__id", "created_by__email")
    hidden = ("digest",)
    inlines = (TokenUsageInline,)


@admin.register(DeploymentEvent)
class DeploymentEventAdmin(ShownAdmin):
    """What was done with deployments."""

    list_display = ("at", "deployment", "what", "actor")
    list_select_related = ("deployment", "actor")
    search_fields = ("deployment__name", "deployment__id", "what")


@admin.register(RuntimeVariant)
class RuntimeVariantAdmin(admin.ModelAdmin[RuntimeVariant]):
    """Programs that serve models: what is changed here counts for new revisions."""

    list_display = ("name", "title", "port", "health_path", "is_enabled")
    list_filter = ("is_enabled",)
    search_fields = ("name", "title")
