"""How the GPUs of a host are connected, as a table of pairs."""

from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from resources.gpus.topology import SELF, UNKNOWN, GpuTopology, closeness_of_link
from resources.models import Host

NVLINKS: Final = "NV#"
LINK_WORDS: Final[dict[str, Promise]] = {
    NVLINKS: gettext_lazy("joined by so many NVLinks"),
    "PSB": gettext_lazy("on one board"),
    "PIX": gettext_lazy("behind one PCIe bridge"),
    "PXB": gettext_lazy("behind several PCIe bridges"),
    "PHB": gettext_lazy("through the PCIe host bridge of a CPU"),
    "NODE": gettext_lazy("within one NUMA node"),
    "SYS": gettext_lazy("from one NUMA node to another"),
    UNKNOWN: gettext_lazy("the driver does not say"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRow:
    """A GPU: its index, its connection with each GPU of the table, and its NUMA node."""

    index: int
    links: tuple[str, ...]
    numa_node: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyTable:
    """The connections of a host's GPUs by pairs, and what the words in the table mean; no rows if nothing is known."""

    rows: tuple[TopologyRow, ...]
    legend: tuple[tuple[str, Promise], ...]
    has_numa_nodes: bool


def topology_table(host: Host) -> TopologyTable | None:
    """Return the table of a host that has several GPUs; `host.gpus` are those present. None for other hosts."""
    indexes = {gpu.index for gpu in host.gpus.all() if gpu.is_present}
    if len(indexes) < 2:
        return None
    found = GpuTopology.from_json(host.gpu_topology).part(indexes)
    rows = tuple(
        TopologyRow(index=index, links=links, numa_node=node)
        for index, links, node in zip(found.indexes, found.links, found.numa_nodes, strict=True)
    )
    kinds = {NVLINKS if link.startswith("NV") else link for row in rows for link in row.links if link != SELF}
    order = sorted(kinds, key=lambda kind: (kind != NVLINKS, -closeness_of_link(kind)))
    return TopologyTable(
        rows=rows,
        legend=tuple((kind, LINK_WORDS[kind]) for kind in order),
        has_numa_nodes=any(node is not None for node in found.numa_nodes),
    )
