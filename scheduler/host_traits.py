"""Reads the traits of hosts: what a host has beside capacity, and which of that a session needs.

A trait is a text: `storage:<id of a root>`, `architecture:<name>`, or `image:<id>` of an image that no registry has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from folders.models import HostRoot, StorageRoot
from resources.discovery import ARCHITECTURES
from resources.models import Host, HostImage, HostStatus, Image
from scheduler.core.types import ARCHITECTURE_TRAIT, IMAGE_TRAIT, STORAGE_TRAIT, ImageHosts, Traits

Value = TypeVar("Value")
EVERY_ARCHITECTURE: Final = tuple(ARCHITECTURES.values())  # of a host that has not told its own


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTraits:
    """What the hosts of each group have, ready ones and those to return soon, by group id."""

    root_ids: Mapping[int, frozenset[int]]
    architectures: Mapping[int, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTraits:
    """Traits by host id, what each group offers, and the hosts that have an image, by image id."""

    of_host: Mapping[int, frozenset[str]]
    offered: OfferedTraits
    image_hosts: ImageHosts


def load_traits() -> HostTraits:
    """Return the traits of all hosts; storage of hosts that are lost does not count. Takes three queries."""
    traits: dict[int, set[str]] = {}
    architectures: dict[int, set[str]] = {}
    root_ids: dict[int, set[int]] = {}
    image_hosts: dict[int, set[int]] = {}
    unknown: list[tuple[int, int]] = []
    for host_id, group_id, architecture in Host.objects.order_by().values_list("pk", "group_id", "architecture"):
        if architecture:
            traits[host_id] = {f"{ARCHITECTURE_TRAIT}:{architecture}"}
            architectures.setdefault(group_id, set()).add(architecture)
        else:
            unknown.append((host_id, group_id))
    for host_id, group_id in unknown:
        if group_id in architectures:
            traits[host_id] = {f"{ARCHITECTURE_TRAIT}:{name}" for name in EVERY_ARCHITECTURE}
    present = HostRoot.objects.filter(is_present=True).exclude(host__status=HostStatus.LOST).order_by()
    for host_id, group_id, root_id in present.values_list("host_id", "host__group_id", "root_id"):
        traits.setdefault(host_id, set()).add(f"{STORAGE_TRAIT}:{root_id}")
        root_ids.setdefault(group_id, set()).add(root_id)
    held = HostImage.objects.order_by().values_list("host_id", "image_id", "image__is_local")
    for host_id, image_id, is_local in held:
        image_hosts.setdefault(image_id, set()).add(host_id)
        if is_local:
            traits.setdefault(host_id, set()).add(f"{IMAGE_TRAIT}:{image_id}")
    offered = OfferedTraits(root_ids=_frozen(root_ids), architectures=_frozen(architectures))
    return HostTraits(of_host=_frozen(traits), offered=offered, image_hosts=_frozen(image_hosts))


def trait_names() -> dict[str, str]:
    """Return the names of storage roots and of images that no registry has, by trait; takes two queries."""
    roots = StorageRoot.objects.order_by().values_list("pk", "name")
    images = Image.objects.filter(is_local=True).order_by().values_list("pk", "reference")
    return {f"{STORAGE_TRAIT}:{pk}": name for pk, name in roots} | {f"{IMAGE_TRAIT}:{pk}": name for pk, name in images}


def needed_traits(
    group_id: int,
    offered: OfferedTraits,
    *,
    required_roots: Iterable[int],
    wanted_roots: Iterable[int],
    image_id: int,
    architecture: str,
    is_local: bool,
) -> Traits:
    """Return the traits that the host of a session must have.

    Wanted roots count only where the group has them; the architecture of its image, "" if that is not known, only where
    the group has a host of another one.
    """
    needed: set[str] = set()
    if required_roots or wanted_roots:
        here = offered.root_ids.get(group_id, frozenset())
        root_ids = {*required_roots, *here.intersection(wanted_roots)}
        needed.update(f"{STORAGE_TRAIT}:{root_id}" for root_id in root_ids)
    if architecture and offered.architectures.get(group_id, frozenset()) - {architecture}:
        needed.add(f"{ARCHITECTURE_TRAIT}:{architecture}")
    if is_local:
        needed.add(f"{IMAGE_TRAIT}:{image_id}")
    return tuple(sorted(needed)) if needed else ()


def _frozen(sets: Mapping[int, set[Value]]) -> dict[int, frozenset[Value]]:
    return {key: frozenset(values) for key, values in sets.items()}
