"""Forms of how a deployment follows its load. The rules of what may be entered are in `deployments.scaling`."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy

from deployments.models import Deployment, ScalingMetric, SleepAction
from deployments.scaling import services
from deployments.scaling.validation import RANGES
from pages.deployments.forms import TEXT, RefusableForm, checkbox, refuse
from resources.amounts.fields import FgpuFormField
from sessions.errors import RejectedError

SELECT: Final = {"class": "form-select", "autocomplete": "off"}
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


def _integer(label: Any, help_text: Any, *, required: bool = True) -> forms.IntegerField:
    return forms.IntegerField(label=label, help_text=help_text, required=required, widget=forms.NumberInput(attrs=TEXT))


class ScalingForm(forms.Form):
    """Between which numbers of replicas a deployment is scaled, and when it sleeps."""

    min_replicas = _integer(gettext_lazy("At least"), gettext_lazy("Replicas, while it is awake"))
    max_replicas = _integer(
        gettext_lazy("At most"), gettext_lazy("Empty: it is not scaled by its load"), required=False
    )
    idle_minutes = forms.FloatField(
        label=gettext_lazy("Sleeps after minutes"),
        help_text=gettext_lazy("Without a request; empty: never"),
        required=False,
        min_value=RANGES["idle_seconds"][0] / SECONDS,
        max_value=RANGES["idle_seconds"][1] / SECONDS,
        widget=forms.NumberInput(attrs={**TEXT, "step": "any"}),
    )
    idle_action = forms.ChoiceField(
        label=gettext_lazy("As it falls asleep"),
        help_text=gettext_lazy("A parked replica wakes faster"),
        choices=(
            (SleepAction.PARK.value, gettext_lazy("Park one replica")),
            (SleepAction.END.value, gettext_lazy("End all replicas")),
        ),
        widget=forms.Select(attrs=SELECT),
    )
    wake_seconds = _integer(gettext_lazy("Seconds to wait"), gettext_lazy("That a request is held while it wakes"))
    down_after_seconds = _integer(
        gettext_lazy("Seconds before fewer"), gettext_lazy("In which no more replicas were needed")
    )
    cooldown_seconds = _integer(gettext_lazy("Seconds between changes"), gettext_lazy("Of the number of replicas"))
    max_fgpu = FgpuFormField(
        label=gettext_lazy("fGPU at most"),
        help_text=gettext_lazy("Of a replica, to which it grows before a further one comes; empty: it stays"),
        required=False,
        widget=forms.TextInput(attrs=TEXT),
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

    def refuse(self, refusal: RejectedError) -> None:
        """Show the messages of a refusal at their fields."""
        refuse(self, refusal, idle_seconds="idle_minutes")


class RuleForm(RefusableForm):
    """A rule to add."""

    metric = forms.ChoiceField(
        label=gettext_lazy("What counts"),
        choices=(
            (ScalingMetric.OUTSTANDING.value, gettext_lazy("Requests under way")),
            (ScalingMetric.REQUESTS.value, gettext_lazy("Requests a second")),
            (ScalingMetric.GPU.value, gettext_lazy("Percent of its share of a GPU")),
            (ScalingMetric.QUERY.value, gettext_lazy("Result of a Prometheus query")),
        ),
        widget=forms.Select(attrs=SELECT),
    )
    target = forms.FloatField(
        label=gettext_lazy("For one replica"),
        help_text=gettext_lazy("So much of it; requests that wait count, too"),
        widget=forms.NumberInput(attrs={**TEXT, "step": "any"}),
    )
    query = forms.ChoiceField(
        label=gettext_lazy("Prometheus query"),
        help_text=gettext_lazy("Of those that the administrator offers"),
        required=False,
        choices=lambda: [("", gettext_lazy("None")), *services.offered_queries().values_list("name", "title")],
        widget=forms.Select(attrs=SELECT),
    )
