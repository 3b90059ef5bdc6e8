"""Kinds of accelerators in resource groups: each group has one, by which its shares, presets and names are meant."""

from collections import Counter
from collections.abc import Iterable, Iterator

from django.db.models import Model, Q, QuerySet

from resources.accelerators.kinds import NVIDIA, kinds_of_image
from resources.amounts.units import amount_text, listing
from resources.models import Gpu, Host, Image, ResourceGroup


def part_refusal(group: ResourceGroup, fgpu: int) -> dict[str, str]:
    """Return {"fgpu": message} for milli-fGPU that are a part of a device which cannot be divided."""
    if group.accelerator == NVIDIA or not fgpu % group.gpu_capacity:
        return {}
    step = amount_text("fgpu", group.gpu_capacity)
    return {"fgpu": f"Every {group.accelerator_name} of this group is lent whole: ask for a multiple of {step}."}


def image_refusal(group: ResourceGroup, fgpu: int, image: Image) -> dict[str, str]:
    """Return {"image": message} where a session with these milli-fGPU has an image for devices of another kind."""
    needed = kinds_of_image(image.accelerators) if fgpu else frozenset()
    if not needed or group.accelerator in needed:
        return {}
    return {
        "image": f"{image} is for {listing(sorted(needed))}, and the resource group {group} lends {group.accelerator}."
    }


def left_out(kinds: Iterable[str], group: ResourceGroup) -> Iterator[str]:
    """Yield a sentence for each kind of these devices that hosts of the group do not lend."""
    for kind, count in Counter(kinds).items():
        if kind != group.accelerator:
            yield (
                f"{count} x {kind} not lent: its group {group.name} lends {group.accelerator}. Set the kind of "
                "accelerators of the group, or put the host into another one."
            )


def sessions_with_devices(group: ResourceGroup) -> QuerySet[Model]:
    """Return the sessions that hold devices of the group, or may get some: they were asked for as of its kind."""
    theirs = Q(resource_group=group) | Q(status="PENDING", group_choices__contains=[group.pk])
    sessions: QuerySet[Model] = group.sessions.model._default_manager.filter(theirs, ended_at=None, fgpu__gt=0)
    return sessions


def lends_other(hosts: QuerySet[Host], kind: str) -> str:
    """Return the name of one of these hosts that lends devices of another kind than this; "" where none does."""
    present = Gpu.objects.filter(host__in=hosts, is_present=True).exclude(kind=kind).order_by("host__name")
    return present.values_list("host__name", flat=True).first() or ""
