"""The site of the administration: a dashboard, and tables in the groups people look for."""

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy as _

from gpuplatform.administration import dashboard
from gpuplatform.administration.audited_admin import AuditedAdmin
from gpuplatform.administration.labelled_times import LabelledAdmin
from gpuplatform.administration.product_links import LinkedAdmin


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
        (
            *("compute.Session", "arrays.Array", "compute.IdleRule", "compute.Endpoint", "compute.Conversion"),
            *("compute.SessionEvent", "specs.LaunchTemplate"),
        ),
    ),
    AdminSection(
        _("Deployments"),
        "globe",
        (
            *("deployments.Deployment", "deployments.Revision", "deployments.Replica", "deployments.DeploymentToken"),
            *("deployments.RuntimeVariant", "deployments.PrometheusQuery", "deployments.DeploymentEvent"),
        ),
    ),
    AdminSection(
        _("Hosts and GPUs"),
        "host",
        (
            *("resources.ResourceGroup", "resources.Host", "resources.Gpu", "resources.GpuWeight", "resources.Preset"),
            *("resources.ElasticPool", "resources.ElasticHost"),
        ),
    ),
    AdminSection(_("Environments"), "box", ("resources.Image", "resources.Registry")),
    AdminSection(
        _("Data"), "folder", ("folders.StorageRoot", "folders.Folder", "imports.Import", "imports.ImportCredential")
    ),
)
ROWS: Final = 50  # of a page of a list, most of whose time they take
WORDS_SECONDS: Final = 86_400  # for which browsers keep the words of Django's scripts
RARE: Final = AdminSection(_("Rarely needed"), "dots", ())
FRONT_PAGE_APPS: Final = frozenset(label.split(".")[0] for group in GROUPS for label in group.models) | {
    "notifications"
}


class AdministrationSite(admin.AdminSite):
    """The platform's administration."""

    site_title = site_header = "GPU Platform"
    index_title = _("Administration")
    index_template = "admin/index.html"
    enable_nav_sidebar = False

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register models whose administration records what is done there."""
        own = admin_class or admin.ModelAdmin
        bases = (AuditedAdmin, LinkedAdmin, LabelledAdmin, own)
        super().register(model_or_iterable, type(own.__name__, bases, {"list_per_page": ROWS}), **options)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the tables that the user may see, and superadmins the dashboard."""
        own: dict[str, Any] = {"groups": self.groups(request)}
        if request.user.is_superuser:
            own["dashboard"] = dashboard.read()
        return super().index(request, own | (extra_context or {}))

    def app_index(  # type: ignore[override]  # a redirect in place of a page
        self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the front page, which has the tables of all apps by section."""
        return redirect("admin:index")

    def i18n_javascript(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Send the words of Django's scripts, which browsers keep until the cookies change, such as the language's."""
        response = super().i18n_javascript(request, extra_context)
        patch_cache_control(response, private=True, max_age=WORDS_SECONDS)
        patch_vary_headers(response, ("Cookie",))
        return response

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Return the tables that the user may see by app, looked up once they are needed: most pages do not."""
        return SimpleLazyObject(lambda: super(AdministrationSite, self).get_app_list(request, app_label))

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
