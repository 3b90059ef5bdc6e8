"""Links from rows of the administration to the pages of the product that show the same thing."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext


def _session(session_id: str) -> str:
    return reverse("sessions:detail", args=[session_id])


def _deployment(deployment_id: str) -> str:
    return reverse("deployments:detail", args=[deployment_id])


def _host(name: str) -> str:
    return reverse("overview:host", args=[name])


def _listed(view: str, **query: object) -> str:
    return f"{reverse(view)}?{urlencode(query)}"


PAGES: Final[Mapping[str, Callable[[Any], str]]] = {  # by the label of the model
    "accounts.User": lambda row: reverse("overview:user", args=[row.pk]),
    "accounts.AccountInvitation": lambda row: _listed("sessions:list", q=row.email),
    "accounts.ApiToken": lambda row: _listed("sessions:list", q=row.user.email),
    "accounts.SshKey": lambda row: _listed("sessions:list", q=row.owner.email),
    "accounts.Project": lambda row: _listed("overview:usage", by="project"),
    "accounts.ResourcePolicy": lambda row: reverse("overview:limits"),
    "compute.Session": lambda row: _session(row.pk),
    "compute.Lease": lambda row: _session(row.session_id),
    "compute.GpuShare": lambda row: _session(row.lease.session_id),
    "compute.SessionEvent": lambda row: _session(row.session_id),
    "compute.Endpoint": lambda row: _session(row.session_id),
    "compute.Conversion": lambda row: _session(row.session_id),
    "deployments.Deployment": lambda row: _deployment(row.pk),
    "deployments.Revision": lambda row: _deployment(row.deployment_id),
    "deployments.Replica": lambda row: _session(row.pk),
    "deployments.DeploymentToken": lambda row: _deployment(row.deployment_id),
    "deployments.DeploymentEvent": lambda row: _deployment(row.deployment_id),
    "deployments.RuntimeVariant": lambda row: reverse("deployments:new"),
    "arrays.Array": lambda row: reverse("arrays:detail", args=[row.pk]),
    "resources.Host": lambda row: _host(row.name),
    "resources.Gpu": lambda row: f"{_host(row.host.name)}#gpu-{row.pk}",
    "resources.GpuWeight": lambda row: reverse("overview:usage"),
    "resources.ResourceGroup": lambda row: _listed("overview:hosts", group=row.pk),
    "resources.ElasticPool": lambda row: _listed("overview:hosts", group=row.group_id),
    "resources.ElasticHost": lambda row: _listed("overview:hosts", group=row.pool.group_id),
    "resources.Preset": lambda row: reverse("sessions:launch-step", args=["resources"]),
    "resources.Image": lambda row: _listed("overview:environments", q=row.environment),
    "specs.LaunchTemplate": lambda row: reverse("sessions:template", args=[row.pk]),
    "notifications.Announcement": lambda row: reverse("home"),
}


class LinkedAdmin(ModelAdmin[Any]):
    """Gives each row, in the list and on its own page, a link to the product."""

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns with that of the link."""
        columns = super().get_list_display(request)
        return [columns[0], "product_page", *columns[1:]] if self.model._meta.label in PAGES else columns

    @admin.display(description="page")
    def product_page(self, row: Model) -> str:
        """Return a link to the page that shows the row."""
        label = gettext("Open the page of %(name)s") % {"name": row}
        return format_html('<a href="{}" aria-label="{}">{}</a>', PAGES[row._meta.label](row), label, gettext("Open"))

    def view_on_site(self, row: Model) -> str | None:
        """Return the address of the page that shows the row."""
        page = PAGES.get(row._meta.label)
        return page(row) if page else None
