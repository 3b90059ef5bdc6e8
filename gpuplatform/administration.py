"""The site of the administration: a dashboard of hosts, queue and errors, and tables in the groups people look for."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib import admin
from django.db.models import Case, Count, IntegerField, Min, OuterRef, Q, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from gpuplatform.audited_admin import AuditedAdmin
from resources.models import Gpu, Host, HostStatus
from sessions.lifecycle import Status
from sessions.models import GpuShare, Lease, Session

MAX_ROWS: Final = 8  # of each list of the dashboard
ERRORS_SINCE: Final = timedelta(days=1)


@dataclass(frozen=True)
class AdminSection:
    """Tables that belong together on the front page, by the labels of their models."""

    title: str | Promise
    icon: str
    models: tuple[str, ...]


# Tables of other packages that no administrator needs daily, such as the log of sign-ins, have no place among these.
GROUPS: Final = (
    AdminSection(
        _("People"),
        "users",
        (
            *("accounts.User", "accounts.ResourcePolicy", "accounts.AccountInvitation", "accounts.ApiToken"),
            *("accounts.Project", "accounts.SshKey", "accounts.AuditEntry", "notifications.Announcement"),
        ),
    ),
    AdminSection(
        _("Sessions"),
        "layers",
        ("compute.Session", "compute.IdleRule", "compute.Endpoint", "compute.Conversion", "compute.SessionEvent"),
    ),
    AdminSection(
        _("Hosts and GPUs"), "host", ("resources.ResourceGroup", "resources.Host", "resources.Gpu", "resources.Preset")
    ),
    AdminSection(_("Environments"), "box", ("resources.Image", "resources.Registry")),
    AdminSection(_("Data"), "folder", ("folders.StorageRoot", "folders.Folder")),
)
RARE: Final = AdminSection(_("Rarely needed"), "dots", ())
FRONT_PAGE_APPS: Final = frozenset(label.split(".")[0] for group in GROUPS for label in group.models) | {
    "notifications"
}


@dataclass(frozen=True)
class Dashboard:
    """What an administrator looks at first."""

    hosts: list[Any]  # Host with `running`, `gpu_count`, `held_milli` and `capacity_milli`; trouble first
    host_count: int
    hosts_in_trouble: int
    running: int
    pending: int
    oldest_pending_at: datetime | None
    queue: list[Session]
    errors: list[Session]
    error_count: int


class AdministrationSite(admin.AdminSite):
    """The platform's administration."""

    site_title = site_header = "GPU Platform"
    index_title = _("Administration")
    index_template = "admin/index.html"
    enable_nav_sidebar = False

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register models whose administration records what is done there."""
        own = admin_class or admin.ModelAdmin
        super().register(model_or_iterable, type(own.__name__, (AuditedAdmin, own), {}), **options)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the tables that the user may see, and superadmins the dashboard."""
        own: dict[str, Any] = {"groups": self.groups(request)}
        if request.user.is_superuser:
            own["dashboard"] = dashboard()
        return super().index(request, own | (extra_context or {}))

    def groups(self, request: HttpRequest) -> list[tuple[AdminSection, list[dict[str, Any]]]]:
        """Return the tables of the front page that the user may see; tables without a group of their own come last."""
        tables = {
            table["model"]._meta.label: table
            for app in self.get_app_list(request)
            if app["app_label"] in FRONT_PAGE_APPS
            for table in app["models"]
        }
        grouped = [(group, [tables.pop(label) for label in group.models if label in tables]) for group in GROUPS]
        return [(group, members) for group, members in (*grouped, (RARE, list(tables.values()))) if members]


def dashboard() -> Dashboard:
    """Return the state of hosts and queue; a constant number of queries."""
    trouble = ~Q(status=HostStatus.READY) | Q(is_cordoned=True)
    counts = Host.objects.aggregate(all=Count("pk"), trouble=Count("pk", filter=trouble))
    live = Session.objects.filter(status__in=(Status.PENDING, Status.RUNNING)).aggregate(
        running=Count("pk", filter=Q(status=Status.RUNNING)),
        pending=Count("pk", filter=Q(status=Status.PENDING)),
        oldest=Min("created_at", filter=Q(status=Status.PENDING)),
    )
    pending = Session.objects.filter(status=Status.PENDING).order_by("created_at")
    errors = Session.objects.filter(status=Status.ERROR, ended_at__gt=timezone.now() - ERRORS_SINCE)
    return Dashboard(
        hosts=list(_hosts(trouble)),
        host_count=counts["all"],
        hosts_in_trouble=counts["trouble"],
        running=live["running"],
        pending=live["pending"],
        oldest_pending_at=live["oldest"],
        queue=list(pending.select_related("owner")[:MAX_ROWS]),
        errors=list(errors.select_related("owner").order_by("-ended_at")[:MAX_ROWS]),
        error_count=errors.count(),
    )


def _hosts(trouble: Q) -> Any:
    """Return hosts with what is held of them, those in trouble first."""
    leases = Lease.objects.filter(host=OuterRef("pk")).order_by().values("host")
    gpus = Gpu.objects.filter(host=OuterRef("pk"), is_present=True).order_by().values("host")
    shares = GpuShare.objects.filter(gpu__host=OuterRef("pk")).order_by().values("gpu__host")
    hosts = Host.objects.select_related("group").annotate(
        running=Coalesce(Subquery(leases.annotate(n=Count("pk")).values("n")), 0),
        gpu_count=Coalesce(Subquery(gpus.annotate(n=Count("pk")).values("n")), 0),
        held_milli=Coalesce(Subquery(shares.annotate(n=Sum("milli")).values("n")), 0),
        order=Case(When(trouble, then=Value(0)), default=Value(1), output_field=IntegerField()),
    )
    for host in hosts.order_by("order", "name")[:MAX_ROWS]:
        host.capacity_milli = host.gpu_count * host.group.gpu_capacity  # type: ignore[attr-defined]  # for the template
        yield host
