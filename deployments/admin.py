"""Administration of deployments: all but runtime variants is shown, and a deployment can be ended."""

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from accounts.admin import NoChangeMixin, ShownAdmin, ShownInline
from accounts.confirmation import confirmed
from accounts.models import User
from deployments import hosts, services
from deployments.models import (
    Deployment,
    DeploymentEvent,
    DeploymentHost,
    DeploymentToken,
    PrometheusQuery,
    Replica,
    Revision,
    RevisionMount,
    RuntimeVariant,
    ScalingRule,
    TokenUsage,
)
from resources.amounts.admin_columns import fgpu_column, memory_column
from sessions.errors import RejectedError


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


class DeploymentHostInline(ShownInline):
    """The host names that lead to a deployment."""

    model = DeploymentHost
    fields = readonly_fields = ("name", "created_by", "created_at")
    related = ("created_by",)


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
    inlines = (
        *(RevisionInline, ReplicaInline, ScalingRuleInline, DeploymentHostInline),
        *(TokenInline, DeploymentEventInline),
    )
    actions = ("end",)

    @admin.action(description="End selected deployments with their replicas", permissions=["superadmin"])
    @confirmed(
        _(
            "Their addresses serve no more, and their replicas are ended with all that is inside the containers, "
            "except for data folders. This cannot be undone."
        ),
        _owners,
    )
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


class DeploymentHostForm(forms.ModelForm):  # type: ignore[type-arg]  # of no use at run time
    """A host name to give to a deployment."""

    class Meta:
        model = DeploymentHost
        fields = ("name", "deployment")

    def clean(self) -> dict[str, Any]:
        """Refuse a name that may not be given; one that another deployment has is refused as not unique."""
        cleaned = super().clean() or {}
        deployment = cleaned.get("deployment")
        if "name" in cleaned and deployment:
            cleaned["name"] = cleaned["name"].strip().lower()
            try:
                hosts.check(deployment, [*hosts.names_of(deployment), cleaned["name"]])
            except RejectedError as error:
                self.add_error("name", " ".join(error.errors.values()))
        return cleaned


@admin.register(DeploymentHost)
class DeploymentHostAdmin(NoChangeMixin, admin.ModelAdmin[DeploymentHost]):
    """Host names of deployments: given and removed as on a deployment's page, never changed."""

    form = DeploymentHostForm
    list_display = ("name", "deployment", "created_by", "created_at")
    list_select_related = ("deployment", "created_by")
    search_fields = ("name", "deployment__name", "deployment__id")
    autocomplete_fields = ("deployment",)

    def has_module_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user is a superadmin, for every right but that to change: another name is another row."""
        return bool(request.user.is_superuser)

    has_add_permission = has_view_permission = has_delete_permission = has_module_permission

    def save_model(self, request: HttpRequest, obj: DeploymentHost, form: Any, change: bool) -> None:
        """Give the name to the deployment, beside those that it has."""
        names = [*hosts.names_of(obj.deployment), obj.name]
        hosts.set_hosts(obj.deployment, names, actor=cast(User, request.user))

    def delete_model(self, request: HttpRequest, obj: DeploymentHost) -> None:
        """Remove the name from its deployment."""
        names = [name for name in hosts.names_of(obj.deployment) if name != obj.name]
        hosts.set_hosts(obj.deployment, names, actor=cast(User, request.user))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[DeploymentHost]) -> None:
        """Remove these names."""
        for host in queryset.select_related("deployment"):
            self.delete_model(request, host)


@admin.register(DeploymentEvent)
class DeploymentEventAdmin(ShownAdmin):
    """What was done with deployments."""

    list_display = ("at", "deployment", "what", "actor")
    list_select_related = ("deployment", "actor")
    search_fields = ("deployment__name", "deployment__id", "what")


@admin.register(PrometheusQuery)
class PrometheusQueryAdmin(admin.ModelAdmin[PrometheusQuery]):
    """Queries by which owners may have their deployments scaled; rules name them."""

    list_display = ("name", "title", "expression", "is_enabled")
    list_filter = ("is_enabled",)
    search_fields = ("name", "title", "expression")


@admin.register(RuntimeVariant)
class RuntimeVariantAdmin(admin.ModelAdmin[RuntimeVariant]):
    """Programs that serve models: what is changed here counts for new revisions."""

    list_display = ("name", "title", "port", "health_path", "is_enabled")
    list_filter = ("is_enabled",)
    search_fields = ("name", "title")
