"""Reads the traits of hosts: what a host has beside capacity, and which of that a session needs.

A trait is a text: `storage:<id of a root>`, `architecture:<name>`, `image:<id>` of an image that no registry has,
`cores:<count>` that it has at least, in a group that overcommits CPU and whose hosts differ in it,
`gpu_model:<name>`, `gpu_memory:<bytes>` that each of its GPUs has, one for each size of GPUs that there is,
`gpu_size:<bytes>` of the smallest of its GPUs, with `:whole` where they are not divided,
`cluster:network` of a host that can have networks of clusters, or `files:<name of a host>` of the host for which a
parked session waits. Other hosts have none such, so that equal hosts are equal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from django.db.models import Case, Count, Exists, F, OuterRef, Q, When

from folders.models import HostRoot, StorageRoot
from resources.amounts.units import CORE_MILLI, guaranteed_milli
from resources.gpus.discovery import ARCHITECTURES
from resources.gpus.shares import device_memory_for, share_milli_for
from resources.gpus.tiers import Tier
from resources.models import ElasticPool, Gpu, Host, HostImage, HostStatus, Image, ResourceGroup
from scheduler.core.types import (
    ARCHITECTURE_TRAIT,
    CLUSTER_TRAIT,
    CORES_TRAIT,
    FILES_TRAIT,
    GPU_MEMORY_TRAIT,
    GPU_MODEL_TRAIT,
    IMAGE_TRAIT,
    STORAGE_TRAIT,
    GpuChoice,
    ImageHosts,
    Shape,
    Traits,
    gpu_size_trait,
)
from sessions.lifecycle import Status
from sessions.models import Session

Value = TypeVar("Value")
CLUSTER_NETWORK: Final = f"{CLUSTER_TRAIT}:network"
EVERY_ARCHITECTURE: Final = tuple(ARCHITECTURES.values())  # of a host that has not told its own


class GpuSize(NamedTuple):
    """The smallest GPU of a host: its bytes, and whether the host divides its GPUs."""

    memory: int
    divides: bool


class HostOffer(NamedTuple):
    """What a host has in total, whatever is free."""

    traits: frozenset[str]
    shape: Shape

    def could_hold(self, shape: Shape, traits: set[str]) -> bool:
        """Return whether the host, if it were empty, could take a session of this shape that needs these traits."""
        mine = self.shape
        is_large_enough = mine.cpu >= shape.cpu and mine.memory_bytes >= shape.memory_bytes
        return is_large_enough and mine.fgpu_milli >= shape.fgpu_milli and self.traits.issuperset(traits)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTraits:
    """What the hosts of each group have, ready ones and those to return soon, by group id."""

    hosts: Mapping[int, Sequence[HostOffer]]
    architectures: Mapping[int, frozenset[str]]
    gpu_sizes: Sequence[int] = ()  # bytes of the GPUs of all groups, ascending
    gpu_kinds: Mapping[int, frozenset[GpuSize]] = field(default_factory=dict)
    gpu_capacities: Mapping[int, int] = field(default_factory=dict)  # milli-fGPU of a GPU
    core_milli: Mapping[int, int] = field(default_factory=dict)  # that each core of a session takes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTraits:
    """Traits by host id, what each group offers, and the hosts that have an image, by image id."""

    of_host: Mapping[int, frozenset[str]]
    offered: OfferedTraits
    image_hosts: ImageHosts


def load_traits() -> HostTraits:
    """Return the traits of all hosts; storage of hosts that are lost does not count. Takes six queries."""
    traits: dict[int, set[str]] = {}
    architectures: dict[int, set[str]] = {}
    image_hosts: dict[int, set[int]] = {}
    unknown: list[tuple[int, int]] = []
    per_gpu = F("group__fgpu_per_gpu") * 1000
    devices = Count("gpus", filter=Q(gpus__is_present=True)) * per_gpu
    columns = ("pk", "group_id", "architecture", "cpu", "memory", "status")
    resumed = Exists(Session.objects.filter(parked_on=OuterRef("pk"), status=Status.PENDING))
    known = Host.objects.order_by("pk").annotate(awaited=Case(When(resumed, then=F("name")), default=None))
    rows = list(known.values_list(*columns, devices, per_gpu, "group__cpu_overcommit", "cluster_address", "awaited"))
    for host_id, group_id, architecture, *_, awaited in rows:
        if awaited:
            traits[host_id] = {f"{FILES_TRAIT}:{awaited}"}
        if architecture:
            traits.setdefault(host_id, set()).add(f"{ARCHITECTURE_TRAIT}:{architecture}")
            architectures.setdefault(group_id, set()).add(architecture)
        else:
            unknown.append((host_id, group_id))
    for host_id, group_id in unknown:
        if group_id in architectures:
            traits.setdefault(host_id, set()).update(f"{ARCHITECTURE_TRAIT}:{name}" for name in EVERY_ARCHITECTURE)
    present = HostRoot.objects.filter(is_present=True).exclude(host__status=HostStatus.LOST).order_by()
    for host_id, root_id in present.values_list("host_id", "root_id"):
        traits.setdefault(host_id, set()).add(f"{STORAGE_TRAIT}:{root_id}")
    held = HostImage.objects.order_by().values_list("host_id", "image_id", "image__is_local")
    for host_id, image_id, is_local in held:
        image_hosts.setdefault(image_id, set()).add(host_id)
        if is_local:
            traits.setdefault(host_id, set()).add(f"{IMAGE_TRAIT}:{image_id}")
    _add_cluster_traits(traits, rows)
    _add_core_traits(traits, rows)
    gpu_sizes, gpu_kinds = _add_gpu_traits(traits, {row[0]: row[1] for row in rows})
    of_host = _frozen(traits)
    groups = ResourceGroup.objects.order_by().values_list("pk", F("fgpu_per_gpu") * 1000, "cpu_overcommit")
    rules = list(groups)  # of groups without hosts too: they may be elastic
    offered = OfferedTraits(
        hosts=_offers(rows, of_host),
        architectures=_frozen(architectures),
        gpu_sizes=gpu_sizes,
        gpu_kinds=gpu_kinds,
        gpu_capacities={pk: capacity for pk, capacity, _overcommit in rules},
        core_milli={pk: guaranteed_milli(overcommit) for pk, _capacity, overcommit in rules},
    )
    return HostTraits(of_host=of_host, offered=offered, image_hosts=_frozen(image_hosts))


def _add_cluster_traits(traits: dict[int, set[str]], rows: Iterable[tuple[Any, ...]]) -> None:
    """Add that a host can have networks of clusters."""
    for host_id, *_, cluster_address, _ in rows:
        if cluster_address:
            traits.setdefault(host_id, set()).add(CLUSTER_NETWORK)


def _add_core_traits(traits: dict[int, set[str]], rows: Iterable[tuple[Any, ...]]) -> None:
    """Add that a host has at least as many cores as each smaller one of its group, where CPU is overcommitted."""
    sizes: dict[int, set[int]] = {}
    overcommitted = [row for row in rows if guaranteed_milli(row[8]) < CORE_MILLI]
    for _, group_id, _, cpu, *_ in overcommitted:
        sizes.setdefault(group_id, set()).add(cpu)
    for host_id, group_id, _, cpu, *_ in overcommitted:
        if len(sizes[group_id]) > 1:
            mine = traits.setdefault(host_id, set())
            mine.update(f"{CORES_TRAIT}:{size}" for size in sizes[group_id] if size <= cpu)


def _core_traits(group_id: int, offered: OfferedTraits, cores: int) -> Iterator[str]:
    """Yield that a host has as many cores as the session may use, where that takes less of it and some have fewer."""
    sizes = sorted({host.shape.cpu for host in offered.hosts.get(group_id, ())})
    if offered.core_milli.get(group_id, CORE_MILLI) < CORE_MILLI and sizes and sizes[0] < cores <= sizes[-1]:
        yield f"{CORES_TRAIT}:{next(size for size in sizes if size >= cores)}"


def _add_gpu_traits(
    traits: dict[int, set[str]], groups: Mapping[int, int]
) -> tuple[list[int], dict[int, frozenset[GpuSize]]]:
    """Add what all GPUs of a host have in common; `groups` is the group of each, by id. Takes two queries.

    Returns their sizes, ascending, and the kinds of GPUs that groups have, or would by hosts that could be made.
    """
    models: dict[int, set[str]] = {}
    kind_of: dict[int, GpuSize] = {}
    columns = "host", "name", "memory", "tier"
    present = Gpu.objects.filter(is_present=True, kind=F("host__group__accelerator")).order_by()
    for host_id, model, memory, tier in present.values_list(*columns):
        models.setdefault(host_id, set()).add(model)
        known = kind_of.get(host_id, GpuSize(memory, True))
        kind_of[host_id] = GpuSize(min(memory, known.memory), known.divides and tier != Tier.NONE)
    sizes = sorted({kind.memory for kind in kind_of.values()})
    kinds: dict[int, set[GpuSize]] = {}
    for host_id, kind in kind_of.items():
        mine = traits.setdefault(host_id, set())
        mine.update(f"{GPU_MEMORY_TRAIT}:{size}" for size in sizes if size <= kind.memory)
        mine.add(gpu_size_trait(kind.memory, divides=kind.divides))
        if len(models[host_id]) == 1:
            mine.add(f"{GPU_MODEL_TRAIT}:{min(models[host_id])}")
        if host_id in groups:  # not so one that has just joined
            kinds.setdefault(groups[host_id], set()).add(kind)
    for pool in ElasticPool.objects.filter(is_enabled=True):
        found = {GpuSize(row["gpu_memory"], row["divides_gpus"]) for row in pool.possible_types if row["gpu_memory"]}
        kinds.setdefault(pool.group_id, set()).update(found)
    return sizes, _frozen(kinds)


def gpu_choices(group_id: int, offered: OfferedTraits, gpu_memory: int, min_fgpu: int) -> list[GpuChoice]:
    """Return what so many bytes of GPU memory are on each kind of GPUs of a group that has them, the smallest first.

    So larger ones are left to those who need them. At least `min_fgpu` of each; if no kind will do, what no host has.
    """
    capacity = offered.gpu_capacities.get(group_id, 1)  # of a group that has just been made: it has no hosts
    return [
        GpuChoice(
            max(min_fgpu, share_milli_for(gpu_memory, size, capacity, divides=divides)),
            gpu_size_trait(size, divides=divides),
        )
        for size, divides in sorted(offered.gpu_kinds.get(group_id, ()))
        if size >= gpu_memory and min_fgpu <= capacity
    ] or [GpuChoice(max(1, min_fgpu), f"{GPU_MEMORY_TRAIT}:{gpu_memory}")]


def _gpu_traits(
    group_id: int, offered: OfferedTraits, fgpu_milli: int, gpu_model: str, min_gpu_memory: int
) -> Iterator[str]:
    """Yield the traits of hosts whose GPUs are of the model, and of which a session gets the memory."""
    if gpu_model:
        yield f"{GPU_MODEL_TRAIT}:{gpu_model}"
    if min_gpu_memory and fgpu_milli:
        least = device_memory_for(min_gpu_memory, fgpu_milli, offered.gpu_capacities.get(group_id, fgpu_milli))
        yield f"{GPU_MEMORY_TRAIT}:{next((size for size in offered.gpu_sizes if size >= least), least)}"


def _offers(rows: Iterable[tuple[Any, ...]], traits: Mapping[int, frozenset[str]]) -> dict[int, list[HostOffer]]:
    """Return what the hosts have that are not lost, by group id."""
    offers: dict[int, list[HostOffer]] = {}
    for host_id, group_id, _, cpu, memory, status, fgpu_milli, *_ in rows:
        if status != HostStatus.LOST:
            offer = HostOffer(traits.get(host_id, frozenset()), Shape(cpu, memory, fgpu_milli))
            offers.setdefault(group_id, []).append(offer)
    return offers


def trait_names() -> dict[str, str]:
    """Return the names of storage roots and of images that no registry has, by trait; takes two queries."""
    roots = StorageRoot.objects.order_by().values_list("pk", "name")
    images = Image.objects.filter(is_local=True).order_by().values_list("pk", "reference")
    return {f"{STORAGE_TRAIT}:{pk}": name for pk, name in roots} | {f"{IMAGE_TRAIT}:{pk}": name for pk, name in images}


def needed_traits(
    group_id: int,
    offered: OfferedTraits,
    *,
    shape: Shape,
    required_roots: Iterable[int],
    wanted_roots: Iterable[int],
    image_id: int,
    architecture: str,
    is_local: bool,
    parked_on: str | None = None,
    gpu_model: str = "",
    min_gpu_memory: int = 0,
    in_cluster: bool = False,
) -> Traits:
    """Return the traits that the host of a session must have.

    A wanted root counts only where a host of the group has it beside all else that the session needs, in size as well:
    else the session would wait for ever for what it can do without. The architecture of its image, "" if that is not
    known, counts only where the group has a host of another one. A session that was parked needs the host of this name.
    Members of clusters need hosts that can have their networks.
    """
    needed: set[str] = set() if parked_on is None else {f"{FILES_TRAIT}:{parked_on}"}
    needed.update(f"{STORAGE_TRAIT}:{root_id}" for root_id in required_roots)
    if architecture and offered.architectures.get(group_id, frozenset()) - {architecture}:
        needed.add(f"{ARCHITECTURE_TRAIT}:{architecture}")
    if is_local:
        needed.add(f"{IMAGE_TRAIT}:{image_id}")
    if in_cluster:
        needed.add(CLUSTER_NETWORK)
    needed.update(_core_traits(group_id, offered, shape.cpu))
    needed.update(_gpu_traits(group_id, offered, shape.fgpu_milli, gpu_model, min_gpu_memory))
    for root_id in wanted_roots:
        more = {*needed, f"{STORAGE_TRAIT}:{root_id}"}
        if any(host.could_hold(shape, more) for host in offered.hosts.get(group_id, ())):
            needed = more
    return tuple(sorted(needed)) if needed else ()


def _frozen(sets: Mapping[int, set[Value]]) -> dict[int, frozenset[Value]]:
    return {key: frozenset(values) for key, values in sets.items()}
