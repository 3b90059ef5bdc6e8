"""Administration of hosts, groups and images; also of users and policies, whose forms have amounts and groups."""

from typing import Any

from django.contrib import admin, messages
from django.db import IntegrityError
from django.db.models import Count, QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.translation import gettext, ngettext

from accounts.admin import NoAddMixin, NoChangeMixin, NoDeleteMixin, ShownInline, UserAdmin
from accounts.models import DEFAULT_LIMITS, Membership, Project, ResourcePolicy, User
from resources.amounts.admin_columns import AmountsAdmin, fgpu_column, memory_column, value_column
from resources.elastic_admin import LiveHostInline, events_table
from resources.forms import ElasticPoolForm, GpuWeightForm, HostForm, PresetForm, ResourceGroupForm
from resources.hosts import bounds, group_changes, measurements, services
from resources.hosts.gpu_kinds import models_text, reported_models, unreported_hint
from resources.image_admin import ImageAdmin, RegistryAdmin
from resources.kick import kick_scheduler
from resources.models import (
    ElasticHost,
    ElasticPool,
    Gpu,
    GpuWeight,
    Host,
    HostHealth,
    Image,
    Installation,
    Preset,
    Registry,
    ResourceGroup,
)
from resources.user_import.admin import UserImportPages
from translation.english import from_english


class KickingAdmin(admin.ModelAdmin[Any]):
    """An admin of rows that scheduling depends on: saving one starts a scheduling pass."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save, and start a scheduling pass."""
        super().save_model(request, obj, form, change)
        kick_scheduler()

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show or save the form; retry once if the database refuses the row.

        It does so if a lease was written between validation and saving; the second validation shows that at its field.
        """
        try:
            return super().changeform_view(request, *args, **kwargs)
        except IntegrityError:
            return super().changeform_view(request, *args, **kwargs)


class LabelledFormSet(BaseInlineFormSet[Any, Any, Any]):
    """Rows of a table whose fields are labelled for screen readers: Django labels the columns alone."""

    def add_fields(self, form: Any, index: int | None) -> None:
        """Add the fields of a row, each labelled by its own name."""
        super().add_fields(form, index)
        for field in form.fields.values():
            widget = getattr(field.widget, "widget", field.widget)  # of what wraps it with links
            widget.attrs.setdefault("aria-label", field.label or "")


class LabelledInline(admin.TabularInline[Any, Any]):
    """A table below a row, labelled for screen readers, with no empty rows."""

    formset = LabelledFormSet
    extra = 0


class GrantedGroupInline(LabelledInline):
    """The resource groups granted to a user."""

    model: type[Any] = ResourceGroup.users.through
    verbose_name = "resource group"
    verbose_name_plural = "resource groups"


class ProjectGroupInline(GrantedGroupInline):
    """The resource groups granted to a project."""

    model = ResourceGroup.projects.through


class MembershipInline(LabelledInline):
    """The members of a project, or the projects of a user."""

    model = Membership
    autocomplete_fields = ("user", "project")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        """Return the memberships with what each is named by."""
        rows: QuerySet[Membership] = super().get_queryset(request)
        return rows.select_related("user", "project")


@admin.register(Project)
class ProjectAdmin(KickingAdmin):
    """Teams: members, limits, and the resource groups granted to them."""

    list_display = (
        *("name", "policy", "share_weight", "is_active", value_column("member_count", "members"), "description"),
    )
    list_filter = ("is_active", "policy")
    list_select_related = ("policy",)
    search_fields = ("name", "description")
    fields = ("name", "description", "policy", "share_weight", "is_active")
    inlines = (MembershipInline, ProjectGroupInline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        """Return the projects with the number of members of each."""
        projects: QuerySet[Project] = super().get_queryset(request)
        return projects.annotate(member_count=Count("memberships"))


@admin.register(User)
class UserWithGroupsAdmin(KickingAdmin, UserImportPages, UserAdmin):
    """Users with the resource groups granted to them."""

    inlines = (GrantedGroupInline, MembershipInline)


@admin.register(ResourcePolicy)
class ResourcePolicyAdmin(KickingAdmin, AmountsAdmin):
    """Limits for a user's sessions together."""

    list_display = (
        *("name", "cpu", memory_column("memory", "memory"), fgpu_column("fgpu", "fGPU")),
        *("max_sessions", "max_pending", "max_per_launch", "max_cluster_size", "max_array_tasks"),
        *("max_priority", "max_lifetime", "max_extension", "max_parked", "max_parked_time", "share_weight"),
        *("disk_bytes", "disk_files", "max_folders"),
        *(memory_column("storage_bytes", "storage"), "storage_files", "allow_sudo", "allow_public_apps"),
        "preemptible_only",
    )
    search_fields = ("name",)
    readonly_fields = ("reservations",)
    fieldsets = (
        (None, {"fields": ("name",)}),
        (
            "Held at once",
            {"fields": ("cpu", "memory", "fgpu", "max_sessions"), "description": "By all sessions of a user together"},
        ),
        (
            "Launching and waiting",
            {
                "fields": (
                    *("max_pending", "max_per_launch", "max_cluster_size", "max_array_tasks"),
                    *("max_priority", "share_weight"),
                )
            },
        ),
        ("Time", {"fields": ("max_lifetime", "max_extension", "reservations", "max_parked", "max_parked_time")}),
        ("Disk of each session", {"fields": ("disk_bytes", "disk_files")}),
        ("Stored", {"fields": ("max_folders", "storage_bytes", "storage_files", "max_private_images")}),
        (
            "Rights",
            {
                "fields": (
                    *("preemptible_only", "allow_sudo", "allow_public_apps", "allow_conversion"),
                    *("allow_unlisted_images", "require_second_factor"),
                )
            },
        ),
    )

    @admin.display(description="reservations")
    def reservations(self, policy: ResourcePolicy) -> str:
        """Return whether starts can be reserved behind sessions under this policy."""
        return bounds.of_policy(policy) or gettext("Every session has a latest end, so starts are reserved and told.")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the lifetime of the default policy for a new one."""
        return {"max_lifetime": DEFAULT_LIMITS["max_lifetime"], **super().get_changeform_initial_data(request)}

    def save_model(self, request: HttpRequest, obj: ResourcePolicy, form: Any, change: bool) -> None:
        """Save, and warn where no start can be reserved behind sessions under the policy."""
        super().save_model(request, obj, form, change)
        if warning := bounds.of_policy(obj):
            self.message_user(request, warning, messages.WARNING)


@admin.register(ResourceGroup)
class ResourceGroupAdmin(KickingAdmin):
    """Hosts that are scheduled together, and who may use them."""

    form = ResourceGroupForm
    list_display = (
        "name",
        "accelerator",
        "fgpu_per_gpu",
        "cpu_overcommit",
        "sharing",
        "placement",
        "queue_order",
        "is_active",
        "open_to_all",
        "description",
    )
    list_filter = ("is_active", "open_to_all", "accelerator")
    search_fields = ("name", "description")
    filter_horizontal = ("users", "projects")
    readonly_fields = ("reservations",)

    @admin.display(description="reservations")
    def reservations(self, group: ResourceGroup) -> str:
        """Return whether starts can be reserved in this group."""
        if group.pk is None:
            return "-"
        return bounds.of_group(group) or gettext("Every session has a latest end, so starts are reserved and told.")

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the grants as well, and say what the change means for those who wait."""
        super().save_related(request, form, formsets, change)
        if change:
            for text in group_changes.consequences(form.instance, form.changed_data):
                self.message_user(request, text, messages.WARNING)


class ReportedAdmin(NoAddMixin, admin.ModelAdmin[Any]):
    """Rows that hosts write about themselves, which cannot be added here."""


class GpuInline(ShownInline):
    """The GPUs of a host, as it reported them."""

    model = Gpu
    fields = readonly_fields = (
        "index",
        "uuid",
        "kind",
        "name",
        memory_column("memory", "memory"),
        "is_simulated",
        "tier",
        "is_present",
    )


@admin.register(Host)
class HostAdmin(KickingAdmin, ReportedAdmin):
    """GPU servers: which group they serve, and whether they take new sessions."""

    form = HostForm
    list_display = ("name", "group", "status", "is_cordoned", "cpu", memory_column("memory", "memory"), "heartbeat_at")
    list_filter = ("status", "is_cordoned", "group")
    list_select_related = ("group",)
    search_fields = ("name",)
    readonly_fields = (
        *("name", "status", "cpu", memory_column("memory", "memory")),
        *("gateway_url", "heartbeat_at", "lost_at", "drain_by", "failed_starts", "gpu_driver"),
        "measured_gpus",
    )
    fields = (*HostForm.Meta.fields, *readonly_fields)
    inlines = (GpuInline,)
    actions: tuple[str, ...] = ("cordon", "uncordon")

    @admin.display(description="failed starts")
    def failed_starts(self, host: Host) -> str:
        """Return how many starts in a row have failed by its fault, and what becomes of it."""
        health: HostHealth | None = getattr(host, "health", None)
        if health is None or not (health.failures or health.gpu_failures):
            return gettext("None")
        facts = {"problem": from_english(health.problem)}
        if health.probe_at:
            facts |= {"since": f"{health.faulty_since:%Y-%m-%d %H:%M}", "at": f"{health.probe_at:%H:%M:%S}"}
            return gettext("Cordoned since %(since)s UTC, probed next at %(at)s UTC: %(problem)s") % facts
        facts["count"] = str(health.failures + health.gpu_failures)
        return gettext("%(count)s in a row: %(problem)s") % facts

    @admin.display(description="measured of fGPU")
    def measured_gpus(self, host: Host) -> str:
        """Return what the hardware protocol found on its GPUs, a paragraph for each."""
        found = measurements.of_gpus(host.gpus.select_related("measurement").order_by("index"))
        hint = gettext("Never; `gpuplatform-manage doctor --gpu` on the host does it.")
        return format_html_join("", "<p>{}</p>", ((line,) for line in found)) or hint

    @admin.action(description="Cordon: place no new sessions on selected hosts", permissions=["change"])
    def cordon(self, request: HttpRequest, hosts: QuerySet[Host]) -> None:
        """Place no new sessions on these hosts; running ones continue."""
        changed = services.cordon(hosts, cordoned=True)
        text = ngettext("%(count)s host cordoned.", "%(count)s hosts cordoned.", changed)
        self.message_user(request, text % {"count": changed}, messages.SUCCESS)

    @admin.action(description="Uncordon: place sessions on selected hosts again", permissions=["change"])
    def uncordon(self, request: HttpRequest, hosts: QuerySet[Host]) -> None:
        """Place sessions on these hosts again."""
        changed = services.cordon(hosts, cordoned=False)
        text = ngettext(
            "%(count)s host uncordoned; waiting sessions are placed in a moment.",
            "%(count)s hosts uncordoned; waiting sessions are placed in a moment.",
            changed,
        )
        self.message_user(request, text % {"count": changed}, messages.SUCCESS)


@admin.register(Gpu)
class GpuAdmin(NoChangeMixin, ReportedAdmin):
    """GPUs as their hosts reported them."""

    list_display = (
        *("uuid", "name", "host", "index", memory_column("memory", "memory"), "tier"),
        *("is_simulated", "is_present", "problem"),
    )
    list_filter = ("tier", "is_simulated", "is_present", "name", "host__group")
    list_select_related = ("host",)
    search_fields = ("uuid", "name", "host__name")


@admin.register(ElasticPool)
class ElasticPoolAdmin(KickingAdmin):
    """Which hosts are made for resource groups when sessions wait, and within which budget."""

    form = ElasticPoolForm
    list_display = (
        "group",
        "is_enabled",
        "provider",
        "min_hosts",
        "max_hosts",
        "cost_per_hour",
        "failures",
        "retry_at",
    )
    list_filter = ("is_enabled", "provider")
    list_select_related = ("group",)
    search_fields = ("group__name",)
    readonly_fields = ("failures", "problem", "retry_at", "silent_since", "silence", "events")
    fieldsets = (
        (None, {"fields": ("group", "is_enabled")}),
        ("What makes hosts", {"fields": ("provider", "configuration", "host_types")}),
        ("Budget", {"fields": ("min_hosts", "max_hosts", "hosts_per_hour", "cost_per_hour")}),
        ("Times", {"fields": ("cool_down", "give_up_after", "back_off", "max_parked_time")}),
        ("State", {"fields": readonly_fields}),
    )
    inlines = (LiveHostInline,)

    @admin.display(description="what has become of its hosts")
    def events(self, pool: ElasticPool) -> str:
        """Return what has happened to its hosts, the latest first."""
        return events_table(pool) if pool.pk else ""


@admin.register(ElasticHost)
class ElasticHostAdmin(NoChangeMixin, NoDeleteMixin, ReportedAdmin):
    """Hosts that were asked for: what became of them, and why."""

    list_display = (
        *("name", "pool", "type_name", "state", "reason", "cost_per_hour"),
        *("created_at", "joined_at", "ended_at"),
    )
    list_filter = ("state", "has_failed", "pool")
    list_select_related = ("pool__group",)
    search_fields = ("name", "identifier")


@admin.register(Preset)
class PresetAdmin(AmountsAdmin):
    """Named sets of resources that users pick from."""

    form = PresetForm
    list_display = (
        *("name", "group", "cpu", memory_column("memory", "memory")),
        *(memory_column("shared_memory", "shared memory"), fgpu_column("fgpu", "fGPU")),
        memory_column("gpu_memory", "GPU memory"),
    )
    list_filter = ("group",)
    list_select_related = ("group",)
    search_fields = ("name",)


@admin.register(GpuWeight)
class GpuWeightAdmin(KickingAdmin):
    """What an hour on a GPU of each model counts."""

    form = GpuWeightForm
    list_display = ("model", "weight")
    search_fields = ("model",)

    def get_form(self, *args: Any, **kwargs: Any) -> Any:
        """Return the form, which says what models there are."""
        form: Any = super().get_form(*args, **kwargs)
        field = form.base_fields["model"]
        field.help_text = f"{field.help_text}. {models_text(reported_models())}"
        return form

    def save_model(self, request: HttpRequest, obj: GpuWeight, form: Any, change: bool) -> None:
        """Save, and warn of a model that no host reports."""
        super().save_model(request, obj, form, change)
        if hint := unreported_hint(obj.model, reported_models()):
            messages.warning(request, hint)


@admin.register(Installation)
class InstallationAdmin(NoChangeMixin, NoDeleteMixin, ReportedAdmin):
    """The key in the labels of this platform's containers; with another key, all would be orphaned."""

    list_display = ("key",)
    fields = ("key",)


admin.site.register(Image, ImageAdmin)
admin.site.register(Registry, RegistryAdmin)
