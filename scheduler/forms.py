"""Form of the simulation page."""

from datetime import timedelta

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from resources.models import PlacementChoice, QueueOrderChoice, ResourceGroup
from scheduler.core.types import PlacementPolicyName, QueueOrder
from scheduler.history import recorded
from scheduler.simulation.comparison import Comparison, Scenario, compare

UNCHANGED = ("", _("as it is"))


class SimulationForm(forms.Form):
    """Sessions to replay, and the scenario to compare with."""

    group = forms.ModelChoiceField(
        ResourceGroup.objects.all(), required=False, label=_("Group"), empty_label=_("all resource groups")
    )
    days = forms.IntegerField(label=_("Days of history"), initial=30, min_value=1, max_value=3650)
    add_hosts = forms.IntegerField(label=_("More hosts"), initial=0, min_value=0, max_value=100)
    policy = forms.ChoiceField(label=_("Placement"), choices=[UNCHANGED, *PlacementChoice.choices], required=False)
    order = forms.ChoiceField(label=_("Order"), choices=[UNCHANGED, *QueueOrderChoice.choices], required=False)
    fgpu_per_gpu = forms.IntegerField(label=_("fGPU per GPU"), required=False, min_value=1, max_value=100)

    def compare(self) -> Comparison | None:
        """Return the comparison of both replays; None if there are no sessions or hosts."""
        asked = self.cleaned_data
        world, jobs = recorded(timezone.now() - timedelta(days=asked["days"]), asked["group"])
        if not jobs or not world.hosts:
            return None
        scenario = Scenario(
            placement_policy=PlacementPolicyName(asked["policy"]) if asked["policy"] else None,
            queue_order=QueueOrder(asked["order"]) if asked["order"] else None,
            add_hosts=asked["add_hosts"],
            fgpu_per_gpu=asked["fgpu_per_gpu"],
        )
        return compare(world, jobs, scenario)
