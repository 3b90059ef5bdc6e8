"""How the GPUs of a host are connected: what NVML says, or simulated ones declare, as `nvidia-smi topo -m` writes it.

No Django. What a driver does not say is `?` or None, never an error.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SELF: Final = "X"
UNKNOWN: Final = "?"
SAME_NODE: Final = "NODE"
OTHER_NODE: Final = "SYS"
NVLINK: Final = re.compile(r"NV([1-9][0-9]?)")
CLOSENESS: Final = {  # scores of NVIDIA's go-gpuallocator; each NVLink counts NVLINK_CLOSENESS
    "PSB": 60,  # on one board
    "PIX": 50,  # behind one PCIe bridge
    "PXB": 40,  # behind several, of one host bridge
    "PHB": 30,  # behind one PCIe host bridge: that of the CPU
    SAME_NODE: 20,  # in one NUMA node
    OTHER_NODE: 10,  # across NUMA nodes
}
NVLINK_CLOSENESS: Final = 100


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """Connections of GPUs by pairs, and the NUMA node of each; `indexes` are those of NVML, in the order of rows."""

    indexes: tuple[int, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()  # NV<count of NVLinks>, a key of CLOSENESS, or UNKNOWN
    numa_nodes: tuple[int | None, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is known."""
        has_links = any(link not in (SELF, UNKNOWN) for row in self.links for link in row)
        return has_links or any(node is not None for node in self.numa_nodes)

    @classmethod
    def of(
        cls, indexes: Sequence[int], links: Mapping[tuple[int, int], str], numa_nodes: Mapping[int, int | None]
    ) -> "GpuTopology":
        """Return the topology of these GPUs; pairs without a link are connected as their NUMA nodes are."""
        nodes = tuple(numa_nodes.get(index) for index in indexes)

        def link(one: int, other: int) -> str:
            if one == other:
                return SELF
            known = links.get((indexes[one], indexes[other])) or links.get((indexes[other], indexes[one]))
            if known or nodes[one] is None or nodes[other] is None:
                return known or UNKNOWN
            return SAME_NODE if nodes[one] == nodes[other] else OTHER_NODE

        places = range(len(indexes))
        return cls(tuple(indexes), tuple(tuple(link(one, other) for other in places) for one in places), nodes)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "GpuTopology":
        """Return what `as_json` has stored."""
        links = tuple(tuple(row) for row in stored.get("links", ()))
        return cls(tuple(stored.get("indexes", ())), links, tuple(stored.get("numa_nodes", ())))

    def as_json(self) -> dict[str, Any]:
        """Return what is stored; {} where nothing is known."""
        if not self:
            return {}
        links = [list(row) for row in self.links]
        return {"indexes": list(self.indexes), "links": links, "numa_nodes": list(self.numa_nodes)}

    def part(self, indexes: Collection[int]) -> "GpuTopology":
        """Return the topology of some of the GPUs."""
        places = [place for place, index in enumerate(self.indexes) if index in indexes]
        return GpuTopology(
            tuple(self.indexes[place] for place in places),
            tuple(tuple(self.links[one][other] for other in places) for one in places),
            tuple(self.numa_nodes[place] for place in places),
        )

    def closeness(self, indexes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return a score for each pair of the devices with these indexes, higher is closer; () where nothing is known.

        Devices whose index is not here, or that share one as MIG instances do, have no connection that is known.
        """
        if not self or len(indexes) < 2:
            return ()
        places = {index: place for place, index in enumerate(self.indexes) if indexes.count(index) == 1}

        def score(one: int, other: int) -> int:
            if one == other or one not in places or other not in places:
                return 0
            return closeness_of_link(self.links[places[one]][places[other]])

        return tuple(tuple(score(one, other) for other in indexes) for one in indexes)

    def summary(self) -> str:
        """Return in words how many pairs have which connection, the closest first."""
        size = len(self.indexes)
        found = [self.links[one][other] for one in range(size) for other in range(one)]
        kinds = sorted(set(found), key=lambda kind: (-closeness_of_link(kind), kind))
        nodes = sorted({node for node in self.numa_nodes if node is not None})
        text = ", ".join(f"{found.count(kind)} x {kind}" for kind in kinds)
        return text + (f"; NUMA nodes {', '.join(map(str, nodes))}" if nodes else "; NUMA nodes not known")


UNKNOWN_TOPOLOGY: Final = GpuTopology()


def closeness_of_link(link: str) -> int:
    """Return the score of a connection; 0 where it is not known."""
    nvlinks = NVLINK.fullmatch(link)
    return NVLINK_CLOSENESS * int(nvlinks[1]) if nvlinks else CLOSENESS.get(link, 0)
