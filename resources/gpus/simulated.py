"""Simulated GPUs as the setting COMPUTE_SIMULATED_GPUS declares them. No Django."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from resources.amounts.units import bytes_from
from resources.gpus.topology import GpuTopology

MAX_SIMULATED: Final = 16  # limit of the simulated driver
_PART: Final = re.compile(
    r"(?P<count>[1-9][0-9]?)\s*x\s*(?P<memory>[^\s=]+(?:\s+[^\s=]+)?)(?P<options>(?:\s+\w+=\S*)*)", re.IGNORECASE
)
_OPTION: Final = re.compile(r"(?P<name>numa|nvlink)=(?P<number>[0-9]{1,2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPart:
    """Simulated GPUs of one size: their NUMA node, and the NVLinks between each two of them."""

    count: int
    memory_bytes: int
    numa_node: int | None = None
    nvlinks: int = 0


def declared(text: str) -> tuple[SimulatedPart, ...]:
    """Return the parts of a text such as "1x8GiB" or "2x8GiB,2x24GiB numa=1 nvlink=4"; () for "".

    Raises ValueError if it is malformed, or declares more than the simulated driver has.
    """
    parts = tuple(_part(part) for part in filter(None, (part.strip() for part in text.split(","))))
    count = sum(part.count for part in parts)
    if count > MAX_SIMULATED:
        raise ValueError(f"{text!r} declares {count} simulated GPUs; a host can have {MAX_SIMULATED}")
    return parts


def topology(parts: Sequence[SimulatedPart]) -> GpuTopology:
    """Return how these GPUs are connected, their indexes from 0 on."""
    nodes: dict[int, int | None] = {}
    links: dict[tuple[int, int], str] = {}
    for part in parts:
        indexes = range(len(nodes), len(nodes) + part.count)
        nodes.update(dict.fromkeys(indexes, part.numa_node))
        if part.nvlinks:
            links.update(dict.fromkeys(combinations(indexes, 2), f"NV{part.nvlinks}"))
    return GpuTopology.of(list(nodes), links, nodes)


def _part(text: str) -> SimulatedPart:
    match = _PART.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} declares no simulated GPUs; write a count and a memory size such as 1x8GiB")
    memory_bytes = bytes_from(match["memory"])
    if not memory_bytes:
        raise ValueError(f"{text!r} declares simulated GPUs without memory")
    options: dict[str, int] = {}
    for word in match["options"].split():
        option = _OPTION.fullmatch(word)
        if not option or option["name"].lower() in options:
            raise ValueError(f"{text!r}: simulated GPUs have no {word!r}; write numa=0 or nvlink=4, each once")
        options[option["name"].lower()] = int(option["number"])
    return SimulatedPart(
        count=int(match["count"]),
        memory_bytes=memory_bytes,
        numa_node=options.get("numa"),
        nvlinks=options.get("nvlink", 0),
    )
