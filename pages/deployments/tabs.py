"""The tabs of a deployment's page: what serves, its tokens, its scaling, its settings."""

from enum import StrEnum

from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy


class Tab(StrEnum):
    """Names of the tabs in addresses."""

    OVERVIEW = "overview"
    TOKENS = "tokens"
    SCALING = "scaling"
    SETTINGS = "settings"


LABELS = (
    (Tab.OVERVIEW, gettext_lazy("Overview")),
    (Tab.TOKENS, gettext_lazy("Tokens")),
    (Tab.SCALING, gettext_lazy("Scaling")),
    (Tab.SETTINGS, gettext_lazy("Settings")),
)
OF_FORMS = {  # the tab that has a form, by the form's name in the context
    "settings_form": Tab.SETTINGS,
    "hosts_form": Tab.SETTINGS,
    "token_form": Tab.TOKENS,
    "limits_form": Tab.TOKENS,
    "made": Tab.TOKENS,
    "scaling_form": Tab.SCALING,
    "rule_form": Tab.SCALING,
}


def tab_named(name: str | None) -> Tab:
    """Return the tab of this name; the overview for any other."""
    return next((tab for tab in Tab if tab == name), Tab.OVERVIEW)


def to_tab(deployment_id: str, tab: Tab = Tab.OVERVIEW) -> HttpResponse:
    """Return a redirect to a tab of the deployment's page."""
    url = reverse("deployments:detail", args=(deployment_id,))
    return HttpResponseRedirect(url if tab == Tab.OVERVIEW else f"{url}?tab={tab}")
