"""The kinds of GPUs of a resource group: what a request by GPU memory can be granted on; and all models there are."""

from collections.abc import Collection
from typing import NamedTuple

from django.db.models import Count, Max, Min, Q
from django.utils.translation import gettext as _

from resources.gpus.shares import share_milli_for
from resources.gpus.tiers import Tier
from resources.models import Gpu, ResourceGroup
from resources.totals import possible_hosts


class GpuKind(NamedTuple):
    """What the GPUs of hosts have in common: bytes, of the smallest of a host, whether it divides them, and model."""

    memory: int
    divides: bool
    model: str  # "" where they are of several, or nobody knows

    def share_of(self, memory: int, capacity: int) -> int:
        """Return the least milli-fGPU of which a session gets so many bytes, of `capacity` for a whole GPU."""
        return share_milli_for(memory, self.memory, capacity, divides=self.divides)


def gpu_kinds(group: ResourceGroup) -> list[GpuKind]:
    """Return the kinds of the GPUs that hosts of a group have, or would if they are made, ascending; two queries."""
    devices = Gpu.objects.filter(host__group=group, is_present=True, kind=group.accelerator).order_by()
    by_host = devices.values("host").annotate(
        least=Min("memory"), whole=Count("pk", filter=Q(tier=Tier.NONE)), first=Min("name"), last=Max("name")
    )
    found = {
        GpuKind(row["least"], not row["whole"], row["first"] if row["first"] == row["last"] else "") for row in by_host
    }
    possible = [row for row in possible_hosts(group) if row["gpu_memory"]]
    made = {GpuKind(row["gpu_memory"], row["divides_gpus"], row["gpu_model"]) for row in possible}
    return sorted(found | made)


def reported_models() -> list[str]:
    """Return the models of the devices that hosts have; one query."""
    present = Gpu.objects.filter(is_present=True).order_by("name")
    return list(present.values_list("name", flat=True).distinct())


def models_text(reported: Collection[str]) -> str:
    """Return which models there are, in words."""
    if not reported:
        return _("No host has a GPU yet.")
    return _("Hosts report: %(models)s.") % {"models": ", ".join(reported)}


def unreported_hint(model: str, reported: Collection[str]) -> str:
    """Return what to tell who names a model that no host reports; "" for others."""
    if model in reported:
        return ""
    return " ".join((_("No host reports this model."), models_text(reported)))
