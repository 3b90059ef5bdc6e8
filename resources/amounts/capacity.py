"""Check whether a request could ever be placed in a group, with a message for each amount that is too large. Pure.

CPU is in cores, memory in bytes, GPU shares in milli-fGPU. Ignores what is free now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from resources.amounts.units import MIB, amount_text, listing, size_text

MIN_SHARED_MEMORY_BYTES: Final = MIB
_FIELDS: Final = ("fgpu", "memory", "cpu")  # in order of preference on ties


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of one empty host."""

    cpu: int
    memory: int
    gpu_count: int = 0
    gpu_capacity: int = 0  # milli-fGPU of one GPU

    @property
    def fgpu(self) -> int:
        """Capacity of all GPUs together, in milli-fGPU."""
        return self.gpu_count * self.gpu_capacity


def shared_memory_error(shared_memory: int, memory: int) -> str | None:
    """Return what is wrong with the bytes of shared memory, which count within the memory, of a session or preset."""
    if shared_memory < MIN_SHARED_MEMORY_BYTES:
        return f"Shared memory is at least {size_text(MIN_SHARED_MEMORY_BYTES)}."
    if shared_memory > memory:
        return f"Shared memory is part of the memory and cannot be above {size_text(memory)}."
    return None


def shortfalls(hosts: Iterable[Capacity], *, cpu: int, memory: int, fgpu: int) -> dict[str, str]:
    """Return {field: message} for "cpu", "memory" and "fgpu" where no host of the group has enough capacity.

    Empty if a host fits the request. If each amount fits on some host, but not all on one, the message is for the
    amount that fits on the fewest hosts. Empty without hosts too.
    """
    known = tuple(hosts)
    asked = {"cpu": cpu, "memory": memory, "fgpu": fgpu}
    if not known:
        return {}
    largest = {field: max(_amount(host, field) for host in known) for field in asked}
    short = {field: _too_much(field, largest[field]) for field in asked if asked[field] > largest[field]}
    if short or any(_holds(host, asked) for host in known):
        return short
    scarcest = min(_FIELDS, key=lambda field: sum(_amount(host, field) >= asked[field] for host in known))
    return {scarcest: _not_together(known, asked, scarcest)}


def _amount(host: Capacity, field: str) -> int:
    amount: int = getattr(host, field)
    return amount


def _holds(host: Capacity, asked: Mapping[str, int]) -> bool:
    return all(_amount(host, field) >= amount for field, amount in asked.items())


def _too_much(field: str, largest: int) -> str:
    if field == "fgpu" and not largest:
        return "No host of this group has a GPU."
    return f"The largest host of this group has {amount_text(field, largest)}."


def _not_together(hosts: tuple[Capacity, ...], asked: Mapping[str, int], field: str) -> str:
    """Return a message on how much of `field` hosts have that fit the rest, or that no host fits the rest."""
    rest = {name: amount for name, amount in asked.items() if name != field and amount}
    beside = [_amount(host, field) for host in hosts if _holds(host, rest)]
    if not beside:
        wanted = listing([amount_text(name, amount) for name, amount in asked.items() if amount])
        return f"No host of this group has {wanted} together."
    with_rest = listing([amount_text(name, amount) for name, amount in rest.items()])
    if field == "fgpu" and not max(beside):
        return f"Hosts of this group with {with_rest} have no GPU."
    return f"Hosts of this group with {with_rest} have at most {amount_text(field, max(beside))}."
