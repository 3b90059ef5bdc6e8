"""Read-only queries for the launch page, each a constant number of database queries."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from django.db.models import Count, F, Max, Min, Q, prefetch_related_objects

from accounts.limits import FIELDS, Amounts, exceeded, lesser
from accounts.models import User
from accounts.policies import bounds_of
from pages.launch.offer import PRIVATE_ENVIRONMENT, LaunchOffer
from resources.accelerators.kinds import NVIDIA
from resources.amounts.capacity import Capacity, shortfalls
from resources.amounts.units import amount_text, size_text
from resources.gpus.tiers import Tier
from resources.hosts import kinds
from resources.models import Gpu, Host, HostImage, HostStatus, Image, ImageSource, Preset, ResourceGroup
from sessions.launching.names import random_name
from sessions.limits.held import left_for_each
from translation.english import from_english

SUGGESTED_NAMES: Final = 20


def launch_facts(offer: LaunchOffer) -> dict[str, Any]:
    """Return what the scripts of the launch page know, ready for JSON, in cores, bytes and milli-fGPU.

    `left` is what the policies leave, by project id ("" for none), `groups` the largest session of each group; null is
    unlimited. `hosts` are the ready hosts of a group, and those of them that have an image. Ten queries at most.
    """
    user = offer.owner
    prefetch_related_objects(offer.images, "apps")
    limits = user.policy.limits()
    ready, all_hosts = _capacities(offer.groups)
    biggest = {group.pk: _biggest(ready[group.pk]) for group in offer.groups}
    held = _hosts_with_images(offer.groups)
    gpus = _gpu_kinds(offer.groups)
    return {
        "left": _left(offer),
        "groups": {
            group.pk: {name: lesser(getattr(limits, name), getattr(biggest[group.pk], name)) for name in FIELDS[:3]}
            | {
                "name": group.name,
                "device": group.accelerator_name,
                "divides": group.accelerator == NVIDIA,
                "perGpu": group.fgpu_per_gpu,
                "coreMilli": group.core_milli,
                "hosts": ready[group.pk].total(),
                "gpus": gpus[group.pk],
            }
            for group in offer.groups
        },
        "images": {image.pk: _image_facts(image, held.get(image.pk, {})) for image in offer.images},
        "presets": {
            preset.pk: {
                name: getattr(preset, name) for name in ("cpu", "memory", "shared_memory", "fgpu", "gpu_memory")
            }
            | {"refusals": _refusals(preset, offer.groups, user, all_hosts, gpus)}
            for preset in offer.presets
        },
        "names": [random_name() for _ in range(SUGGESTED_NAMES)],
    }


def _left(offer: LaunchOffer) -> dict[str, dict[str, int | None]]:
    """Return what may still be asked for without a project ("") and for each; four queries at most."""
    projects = {project.pk: project for project in offer.projects}
    return {
        str(pk or ""): {name: getattr(left, name) for name in (*FIELDS, "pending")}
        | {"perLaunch": bounds.max_per_launch, "perCluster": bounds.max_cluster_size}
        for pk, left in left_for_each(offer.owner, offer.projects).items()
        if (bounds := bounds_of(offer.owner, projects.get(pk or 0)))
    }


def disabled_images() -> list[Image]:
    """Return the images for everybody that are not enabled, and of which is known how an administrator enables them."""
    images = Image.objects.filter(owner=None, is_enabled=False, removed_at=None)
    return list(images.exclude(enable_hint=""))


def _image_facts(image: Image, held: Mapping[int, int]) -> dict[str, Any]:
    return {
        "environment": PRIVATE_ENVIRONMENT if image.owner_id else image.environment,
        "version": str(image) if image.owner_id else image.version,
        "description": image.description,
        "apps": [app.title for app in image.apps.all()],
        "accelerators": image.accelerators,
        "cpu": image.min_cpu,
        "memory": image.min_memory,
        "fgpu": image.min_fgpu,
        "gpuMemory": image.min_gpu_memory,
        "size": image.size,
        "isPulled": image.source != ImageSource.CATALOG and not image.is_local,
        "hosts": held,
    }


def _refusals(
    preset: Preset,
    groups: Sequence[ResourceGroup],
    user: User,
    hosts: Mapping[int, Sequence[Capacity]],
    gpus: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[int, str]:
    """Return {group id: why the policy or the hosts of the group can never give the preset}."""
    limits = user.policy.limits()
    asked = Amounts(cpu=preset.cpu, memory=preset.memory, fgpu=preset.fgpu)
    beyond = [
        f"Your policy allows at most {amount_text(name, getattr(limits, name))}." for name in exceeded(limits, asked)
    ]
    found = {}
    for group in groups:
        if preset.group_id in (None, group.pk):
            short = shortfalls(hosts[group.pk], cpu=preset.cpu, memory=preset.memory, fgpu=preset.fgpu)
            largest = max((kind["memory"] for kind in gpus.get(group.pk, ())), default=0)
            if preset.gpu_memory > largest:
                short["gpu_memory"] = f"The largest {group.accelerator_name} of this group has {size_text(largest)}."
            if texts := [*beyond, *short.values(), *kinds.part_refusal(group, preset.fgpu).values()]:
                found[group.pk] = " ".join(from_english(text) for text in texts)
    return found


def _hosts_with_images(groups: Sequence[ResourceGroup]) -> dict[int, dict[int, int]]:
    """Return {image id: {group id: ready hosts that have it}}; one query."""
    ready = Host.objects.filter(group__in=groups, status=HostStatus.READY, is_cordoned=False)
    held: dict[int, dict[int, int]] = {}
    rows = HostImage.objects.filter(host__in=ready).order_by().values_list("image", "host__group")
    for image_id, group_id, count in rows.annotate(Count("pk")):
        held.setdefault(image_id, {})[group_id] = count
    return held


def _capacities(groups: Sequence[ResourceGroup]) -> tuple[dict[int, Counter[Capacity]], dict[int, list[Capacity]]]:
    """Return how many ready hosts of each capacity a group has, by its id, and the capacities of all its hosts.

    Hosts are many, and their capacities few. One query.
    """
    per_gpu = {group.pk: group.gpu_capacity for group in groups}
    ready: dict[int, Counter[Capacity]] = defaultdict(Counter)
    everywhere: dict[int, list[Capacity]] = defaultdict(list)
    hosts = Host.objects.filter(group__in=groups).order_by()
    rows = hosts.annotate(devices=Count("gpus", filter=Q(gpus__is_present=True)))
    kinds = Counter(rows.values_list("group_id", "cpu", "memory", "devices", "status", "is_cordoned"))
    for (group_id, cpu, memory, devices, status, is_cordoned), count in kinds.items():
        capacity = Capacity(cpu=cpu, memory=memory, gpu_count=devices, gpu_capacity=per_gpu[group_id])
        everywhere[group_id].append(capacity)
        if status == HostStatus.READY and not is_cordoned:
            ready[group_id][capacity] += count
    return ready, everywhere


def _biggest(hosts: Collection[Capacity]) -> Amounts:
    """Return the largest amounts of cores, bytes and milli-fGPU on one of the hosts."""
    return Amounts(
        cpu=max((host.cpu for host in hosts), default=0),
        memory=max((host.memory for host in hosts), default=0),
        fgpu=max((host.fgpu for host in hosts), default=0),
    )


def gpu_models(groups: Sequence[ResourceGroup]) -> dict[str, list[str]]:
    """Return {model: names of the groups that have hosts with GPUs of this model alone}, ascending. One query."""
    present = Gpu.objects.filter(host__group__in=groups, is_present=True).order_by()
    hosts = present.values("host", "host__group__name").annotate(first=Min("name"), last=Max("name"))
    rows = hosts.filter(first=F("last")).values_list("first", "host__group__name").distinct()
    found: dict[str, list[str]] = defaultdict(list)
    for model, group in sorted(rows):
        found[model].append(group)
    return found


def _gpu_kinds(groups: Sequence[ResourceGroup]) -> dict[int, list[dict[str, Any]]]:
    """Return the kinds of GPUs of each group, by id: model, bytes, if simulated, and if lent whole only. One query."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    kinds = Gpu.objects.filter(host__group__in=groups, is_present=True).order_by("-memory", "name")
    for group_id, name, memory, is_simulated, tier in kinds.values_list(
        "host__group", "name", "memory", "is_simulated", "tier"
    ).distinct():
        kind = {"name": name, "memory": memory, "isSimulated": is_simulated, "isWhole": tier == Tier.NONE}
        if kind not in found[group_id]:
            found[group_id].append(kind)
    return found
