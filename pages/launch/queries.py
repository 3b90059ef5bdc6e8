"""Read-only queries for the launch page, each a constant number of database queries."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q

from accounts.limits import FIELDS, Amounts, lesser, remaining
from accounts.models import User
from resources.models import Host, HostImage, HostStatus, Image, ImageSource, Preset, ResourceGroup
from sessions.usage import usage_of


def launch_facts(user: User) -> dict[str, Any]:
    """Return the limits for the sliders of the launch page, ready for JSON, in cores, bytes and milli-fGPU.

    `left` is what is left in the policy, `groups` the largest session of each group; null is unlimited. `hosts` are
    the ready hosts of a group, and those of them that have an image. Nine queries.
    """
    limits = user.policy.limits()
    groups = list(ResourceGroup.objects.usable_by(user))
    biggest = _biggest_hosts(groups)
    left = remaining(limits, usage_of(user))
    hosts, held = _image_hosts(groups)
    return {
        "left": {name: getattr(left, name) for name in FIELDS},
        "groups": {
            group.pk: {name: lesser(getattr(limits, name), getattr(biggest[group.pk], name)) for name in FIELDS[:3]}
            | {"perGpu": group.fgpu_per_gpu, "hosts": hosts.get(group.pk, 0)}
            for group in groups
        },
        "images": {
            image.pk: {
                "cpu": image.min_cpu,
                "memory": image.min_memory,
                "fgpu": image.min_fgpu,
                "size": image.size,
                "isPulled": image.source != ImageSource.CATALOG and not image.is_local,
                "hosts": held.get(image.pk, {}),
            }
            for image in Image.objects.usable_by(user)
        },
        "presets": {
            preset.pk: {name: getattr(preset, name) for name in ("cpu", "memory", "shared_memory", "fgpu")}
            for preset in Preset.objects.filter(Q(group=None) | Q(group__in=groups))
        },
    }


def disabled_images() -> list[Image]:
    """Return the images for everybody that are not enabled, and of which is known how an administrator enables them."""
    images = Image.objects.filter(owner=None, is_enabled=False, removed_at=None)
    return list(images.exclude(enable_hint=""))


def _image_hosts(groups: Sequence[ResourceGroup]) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
    """Return {group id: ready hosts}, and {image id: {group id: ready hosts that have it}}; two queries."""
    ready = Host.objects.filter(group__in=groups, status=HostStatus.READY, is_cordoned=False)
    hosts = dict(ready.order_by().values_list("group").annotate(Count("pk")))
    held: dict[int, dict[int, int]] = {}
    rows = HostImage.objects.filter(host__in=ready).order_by().values_list("image", "host__group")
    for image_id, group_id, count in rows.annotate(Count("pk")):
        held.setdefault(image_id, {})[group_id] = count
    return hosts, held


def _biggest_hosts(groups: Sequence[ResourceGroup]) -> dict[int, Amounts]:
    """Return {group id: the largest amounts of cores, bytes and milli-fGPU on one of its ready hosts}."""
    found = {group.pk: Amounts() for group in groups}
    capacity = {group.pk: group.gpu_capacity for group in groups}
    ready = Host.objects.filter(group__in=groups, status=HostStatus.READY, is_cordoned=False)
    for host in ready.annotate(devices=Count("gpus", filter=Q(gpus__is_present=True))):
        most = found[host.group_id]
        found[host.group_id] = Amounts(
            cpu=max(most.cpu, host.cpu),
            memory=max(most.memory, host.memory),
            fgpu=max(most.fgpu, host.devices * capacity[host.group_id]),
        )
    return found
