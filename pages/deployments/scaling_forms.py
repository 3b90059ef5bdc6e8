"""Forms of how a deployment follows its load. The rules of what may be entered are in `deployments.scaling`."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy

from deployments.models import Deployment, ScalingMetric, SleepAction
from deployments.scaling import services
from deployments.scaling.validation import RANGES
from pages.deployments.forms import checkbox, number_field
from resources.amounts.fields import FgpuFormField
from sessions.forms.service_form import ServiceForm

SECONDS: Final = 60  # of a minute
AS_STORED: Final = (
    "min_replicas",
    "max_replicas",
    "idle_action",
    "wake_seconds",
    "down_after_seconds",
    "cooldown_seconds",
    "max_fgpu",
    "is_preemptible",
)


class ScalingForm(ServiceForm):
    """Between which numbers of replicas a deployment is scaled, and when it sleeps."""

    service_fields = {"idle_seconds": "idle_minutes"}

    min_replicas = number_field(gettext_lazy("At least"), gettext_lazy("Replicas, while it is awake"))
    max_replicas = number_field(
        gettext_lazy("At most"), gettext_lazy("Empty: it is not scaled by its load"), required=False
    )
    idle_minutes = forms.FloatField(
        label=gettext_lazy("Sleeps after minutes"),
        help_text=gettext_lazy("Without a request; empty: never"),
        required=False,
        min_value=RANGES["idle_seconds"][0] / SECONDS,
        max_value=RANGES["idle_seconds"][1] / SECONDS,
    )
    idle_action = forms.ChoiceField(
        label=gettext_lazy("As it falls asleep"),
        help_text=gettext_lazy("A parked replica wakes faster"),
        choices=(
            (SleepAction.PARK.value, gettext_lazy("Park one replica")),
            (SleepAction.END.value, gettext_lazy("End all replicas")),
        ),
    )
    wake_seconds = number_field(gettext_lazy("Seconds to wait"), gettext_lazy("That a request is held while it wakes"))
    down_after_seconds = number_field(
        gettext_lazy("Seconds before fewer"), gettext_lazy("In which no more replicas were needed")
    )
    cooldown_seconds = number_field(gettext_lazy("Seconds between changes"), gettext_lazy("Of the number of replicas"))
    max_fgpu = FgpuFormField(
        widget=forms.TextInput,
        label=gettext_lazy("fGPU at most"),
        help_text=gettext_lazy("Of a replica, to which it grows before a further one comes; empty: it stays"),
        required=False,
    )
    is_preemptible = checkbox(
        gettext_lazy("Preemptible"),
        gettext_lazy("Replicas beyond the least end for sessions that need their resources, and come back later."),
    )

    @classmethod
    def of(cls, deployment: Deployment, data: Any = None) -> "ScalingForm":
        """Return the form with what holds now, or what was posted."""
        minutes = None if deployment.idle_seconds is None else deployment.idle_seconds / SECONDS
        now = {name: getattr(deployment, name) for name in AS_STORED}
        now["idle_minutes"] = int(minutes) if minutes is not None and minutes.is_integer() else minutes
        return cls(data, initial=now, prefix="scaling")

    def changes(self) -> dict[str, Any]:
        """Return what the valid form asks for, by the names of the columns."""
        asked = self.cleaned_data
        minutes = asked["idle_minutes"]
        idle_seconds = None if minutes is None else round(minutes * SECONDS)
        return {**{name: asked[name] for name in AS_STORED}, "idle_seconds": idle_seconds}


class RuleForm(ServiceForm):
    """A rule to add."""

    metric = forms.ChoiceField(
        label=gettext_lazy("What counts"),
        choices=(
            (ScalingMetric.OUTSTANDING.value, gettext_lazy("Requests under way")),
            (ScalingMetric.REQUESTS.value, gettext_lazy("Requests a second")),
            (ScalingMetric.GPU.value, gettext_lazy("Percent of its share of a GPU")),
            (ScalingMetric.QUERY.value, gettext_lazy("Result of a Prometheus query")),
        ),
    )
    target = forms.FloatField(
        label=gettext_lazy("For one replica"), help_text=gettext_lazy("So much of it; requests that wait count, too")
    )
    query = forms.ChoiceField(
        label=gettext_lazy("Prometheus query"),
        help_text=gettext_lazy("Of those that the administrator offers"),
        required=False,
        choices=lambda: [("", gettext_lazy("None")), *services.offered_queries().values_list("name", "title")],
    )
