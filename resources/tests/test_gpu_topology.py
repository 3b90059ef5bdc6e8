"""How GPUs are connected: what NVML says, and does not say, what simulated ones declare, and what is stored of it."""

import logging
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from resources.amounts.units import GIB
from resources.gpus import nvml_topology as module
from resources.gpus.discovery import this_machine
from resources.gpus.nvml_topology import nvml_topology
from resources.gpus.simulated import declared, topology
from resources.gpus.topology import GpuTopology, closeness_of_link

PAIRED = "2x24GiB numa=0 nvlink=4, 2x24GiB numa=1 NVLink=4"


class FakeNvml:
    """NVML of a machine with four GPUs: the first two joined by NVLinks, all of them in two NUMA nodes."""

    def __init__(self, *silent: str, has_switch: bool = False) -> None:
        self.silent = silent
        self.has_switch = has_switch

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in {"nvmlInit", "nvmlShutdown"}:
            return getattr(pynvml, name) if not name.startswith("nvml") else lambda: None
        if name in self.silent:
            return self.refuse
        return getattr(self, f"say_{name.removeprefix('nvmlDevice')}")

    def refuse(self, *arguments: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def say_GetHandleByIndex(self, index: int) -> int:
        return index

    def say_GetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{handle:02X}A:00.0")

    def say_GetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 6:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(self.has_switch or (handle < 2 and link < 4))

    def say_GetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=b"0000:F0:00.0" if self.has_switch else f"0000:{1 - handle:02x}a:00.0".encode())

    def say_GetP2PStatus(self, one: int, other: int, kind: int) -> int:
        return int(
            pynvml.NVML_P2P_STATUS_OK
            if self.has_switch or {one, other} == {0, 1}
            else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
        )

    def say_GetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return int(pynvml.NVML_TOPOLOGY_SINGLE if one // 2 == other // 2 else pynvml.NVML_TOPOLOGY_SYSTEM)

    def say_GetMemoryAffinity(self, handle: int, words: int, scope: int) -> list[int]:
        return [1 << handle // 2] + [0] * (words - 1)


EVERYTHING = (
    *("nvmlDeviceGetPciInfo", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetP2PStatus"),
    *("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetMemoryAffinity"),
)


def asked(monkeypatch: pytest.MonkeyPatch, *silent: str, has_switch: bool = False) -> GpuTopology:
    monkeypatch.setattr(module, "pynvml", FakeNvml(*silent, has_switch=has_switch))
    return nvml_topology((0, 1, 2, 3))


def test_nvml_says_links_paths_and_numa_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch)
    assert found.links == (
        ("X", "NV4", "SYS", "SYS"),
        ("NV4", "X", "SYS", "SYS"),
        ("SYS", "SYS", "X", "PIX"),
        ("SYS", "SYS", "PIX", "X"),
    )
    assert found.numa_nodes == (0, 0, 1, 1)
    assert found.summary() == "1 x NV4, 1 x PIX, 4 x SYS; NUMA nodes 0, 1"
    switched = asked(monkeypatch, has_switch=True)
    assert {link for row in switched.links for link in row} == {"X", "NV6"}


@pytest.mark.parametrize(
    ("silent", "links"),
    [
        (("nvmlDeviceGetTopologyCommonAncestor",), ("X", "NV4", "SYS", "SYS")),  # by the NUMA nodes
        (("nvmlDeviceGetNvLinkRemotePciInfo",), ("X", "NV4", "SYS", "SYS")),  # by what P2P says
        (("nvmlDeviceGetNvLinkState", "nvmlDeviceGetP2PStatus"), ("X", "PIX", "SYS", "SYS")),
        (("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetMemoryAffinity"), ("X", "NV4", "?", "?")),
    ],
)
def test_what_nvml_leaves_out_is_not_known(
    monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...], links: tuple[str, ...]
) -> None:
    assert asked(monkeypatch, *silent).links[0] == links


def test_a_driver_that_says_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="resources")
    found = asked(monkeypatch, *EVERYTHING)
    assert (bool(found), found.as_json(), found.closeness((0, 1, 2, 3))) == (False, {}, ())
    assert "connections of the GPUs: not available from NVML" in caplog.text
    assert not asked(monkeypatch, "nvmlDeviceGetHandleByIndex")


def test_simulated_gpus_declare_links_and_nodes() -> None:
    found = topology(declared(PAIRED))
    assert found.links[0] == ("X", "NV4", "SYS", "SYS")
    assert found.numa_nodes == (0, 0, 1, 1)
    assert not topology(declared("4x24GiB"))
    machine = this_machine(host_name="a", simulated=PAIRED)
    assert [device.memory for device in machine.devices] == [24 * GIB] * 4
    assert machine.topology == found
    part = this_machine(host_name="a", simulated=PAIRED, gpus=[device.uuid for device in machine.devices[1:]])
    assert (part.topology.indexes, part.topology.links[0]) == ((1, 2, 3), ("X", "SYS", "SYS"))


@pytest.mark.parametrize("text", ["1x8GiB numa=x", "1x8GiB nvlink=1 nvlink=2", "1x8GiB speed=9", "1x8GiB numa = 1"])
def test_a_malformed_connection_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"simulated GPUs|size"):
        declared(text)


def test_what_is_stored_gives_the_same_closeness() -> None:
    found = topology(declared(PAIRED))
    stored = GpuTopology.from_json(found.as_json())
    assert stored == found
    assert stored.closeness((1, 0, 2)) == ((0, 400, 10), (400, 0, 10), (10, 10, 0))
    assert stored.closeness((0, 0, 1)) == ((0, 0, 0),) * 3  # MIG instances of one GPU: not known
    assert stored.closeness((0, 9)) == ((0, 0), (0, 0))
    assert GpuTopology.from_json({}).closeness((0, 1)) == ()
    assert [closeness_of_link(link) for link in ("NV18", "NV1", "PIX", "SYS", "?", "X")] == [1800, 100, 50, 10, 0, 0]
