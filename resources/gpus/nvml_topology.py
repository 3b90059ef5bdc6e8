"""Asks NVML how the GPUs of this machine are connected. What it does not say is left out, and logged once."""

import logging
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final

import pynvml

from resources.gpus.topology import UNKNOWN_TOPOLOGY, GpuTopology

logger = logging.getLogger(__name__)

LEVELS: Final = {  # of NVML, with the words of nvidia-smi
    pynvml.NVML_TOPOLOGY_INTERNAL: "PSB",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
NODE_SET_WORDS: Final = 16  # of 64 bits: NUMA nodes that are looked for
WORD_BITS: Final = 64


def nvml_topology(indexes: Sequence[int]) -> GpuTopology:
    """Return how the GPUs with these NVML indexes are connected; without connections where NVML does not say."""
    if not indexes:
        return UNKNOWN_TOPOLOGY
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return UNKNOWN_TOPOLOGY
    try:
        asked = {index: _asked(pynvml.nvmlDeviceGetHandleByIndex, index) for index in sorted(set(indexes))}
        handles = {index: handle for index, handle in asked.items() if handle is not None}
        nvlinks = {index: _nvlinks(handle) for index, handle in handles.items()}
        buses = {index: _bus_id(_asked(pynvml.nvmlDeviceGetPciInfo, handle)) for index, handle in handles.items()}
        links: dict[tuple[int, int], str] = {}
        for one, other in combinations(handles, 2):
            count = nvlinks[one].count(buses[other]) if buses[other] else 0
            if not count and _is_p2p(handles[one], handles[other]):  # through an NVSwitch, which has a bus of its own
                count = max(1, min(len(nvlinks[one]), len(nvlinks[other])))
            level = _asked(pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[one], handles[other])
            links[one, other] = f"NV{count}" if count else LEVELS.get(level, "")
        found = GpuTopology.of(list(handles), links, {index: _numa_node(handle) for index, handle in handles.items()})
    finally:
        pynvml.nvmlShutdown()
    if len(indexes) > 1:
        logger.info("connections of the GPUs: %s", found.summary() if found else "not available from NVML")
    return found


def _asked(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return what NVML says, or None where it does not: an old driver, a device without it, a GPU that is lost."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None


def _nvlinks(handle: Any) -> list[str]:
    """Return for each active NVLink of a GPU the PCI bus id at its other end, "" where that is not said."""
    remotes = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if _asked(pynvml.nvmlDeviceGetNvLinkState, handle, link) == pynvml.NVML_FEATURE_ENABLED:
            remotes.append(_bus_id(_asked(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)))
    return remotes


def _bus_id(info: Any) -> str:
    """Return the bus id of NVML's structure in one form: domains have four or eight digits."""
    if info is None:
        return ""
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}" if rest else ""


def _is_p2p(one: Any, other: Any) -> bool:
    """Return whether NVML says that two GPUs reach each other by NVLink."""
    status = _asked(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    return status is not None and bool(status == pynvml.NVML_P2P_STATUS_OK)


def _numa_node(handle: Any) -> int | None:
    """Return the NUMA node nearest to a GPU; None where NVML does not say, or names several."""
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    words = _asked(pynvml.nvmlDeviceGetMemoryAffinity, handle, NODE_SET_WORDS, scope) or ()
    bits = sum(int(word) << (WORD_BITS * place) for place, word in enumerate(words))
    return bits.bit_length() - 1 if bits and not bits & (bits - 1) else None
