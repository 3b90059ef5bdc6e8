"""The tabs of a deployment's page: what serves, its tokens, its scaling, its settings."""

from enum import StrEnum

from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy


class DeploymentTab(StrEnum):
    """Names of the tabs in addresses."""

    OVERVIEW = "overview"
    TOKENS = "tokens"
    SCALING = "scaling"
    SETTINGS = "settings"


LABELS = (
    (DeploymentTab.OVERVIEW, gettext_lazy("Overview")),
    (DeploymentTab.TOKENS, gettext_lazy("Tokens")),
    (DeploymentTab.SCALING, gettext_lazy("Scaling")),
    (DeploymentTab.SETTINGS, gettext_lazy("Settings")),
)
OF_FORMS = {  # the tab that has a form, by the form's name in the context
    "settings_form": DeploymentTab.SETTINGS,
    "hosts_form": DeploymentTab.SETTINGS,
    "token_form": DeploymentTab.TOKENS,
    "limits_form": DeploymentTab.TOKENS,
    "made": DeploymentTab.TOKENS,
    "scaling_form": DeploymentTab.SCALING,
    "rule_form": DeploymentTab.SCALING,
}


def tab_named(name: str | None) -> DeploymentTab:
    """Return the tab of this name; the overview for any other."""
    return next((tab for tab in DeploymentTab if tab == name), DeploymentTab.OVERVIEW)


def to_tab(deployment_id: str, tab: DeploymentTab = DeploymentTab.OVERVIEW) -> HttpResponse:
    """Return a redirect to a tab of the deployment's page."""
    url = reverse("deployments:detail", args=(deployment_id,))
    return HttpResponseRedirect(url if tab == DeploymentTab.OVERVIEW else f"{url}?tab={tab}")
