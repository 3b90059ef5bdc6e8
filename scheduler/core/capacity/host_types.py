"""Hosts that there could be: what an empty host of a type can hold. Pure."""

from resources.amounts.units import CORE_MILLI
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.types import CORES_TRAIT, GPU_MEMORY_TRAIT, GpuView, HostType, Shape, Traits


def has_traits(kind: HostType, traits: Traits) -> bool:
    """Return whether hosts of a type have these traits, some of which are least amounts."""
    for trait in traits:
        name, _, value = trait.partition(":")
        least = {CORES_TRAIT: kind.cpu // CORE_MILLI, GPU_MEMORY_TRAIT: kind.gpu_memory_bytes}.get(name)
        if trait not in kind.traits if least is None else least < int(value):
            return False
    return True


def empty_host(kind: HostType, index: int = 0) -> HostCapacity:
    """Return an empty host of a type, without traits."""
    capacity = kind.gpu_capacity_milli
    return HostCapacity(
        host_id=-1 - index,
        index=index,
        cpu=kind.cpu,
        memory_bytes=kind.memory_bytes,
        gpus=[GpuView(number, capacity, capacity) for number in range(kind.gpu_count)],
        divides=kind.divides,
    )


def could_hold(kind: HostType, shape: Shape) -> bool:
    """Return whether an empty host of a type could take a shape, or one member of a cluster that may span hosts."""
    if shape.pins or not has_traits(kind, shape.traits):
        return False
    part = shape.of_members(1, with_main=True) if shape.spans_hosts else shape
    return empty_host(kind).fits(part._replace(traits=()))
