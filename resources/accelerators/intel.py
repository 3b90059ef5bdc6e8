"""Intel's GPUs with memory of their own, their virtual functions, and Gaudi, by what i915, xe and habanalabs say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from resources.accelerators import sysfs
from resources.accelerators.devices import Accelerator, ContainerEdits
from resources.accelerators.kinds import GAUDI, INTEL
from resources.amounts.units import GIB

DRIVERS: Final = ("i915", "xe")
LOCAL_MEMORY_BAR: Final = 2
HABANA: Final = 0x1DA3  # vendor on PCI
OPERATIONAL: Final = ("", "Operational")
GAUDI_BYTES: Final = {"GAUDI": 32 * GIB, "GAUDI2": 96 * GIB, "GAUDI3": 128 * GIB}  # which sysfs does not say


def find(root: Path) -> Iterator[Accelerator]:
    """Yield the GPUs, then the Gaudis."""
    for card in sysfs.entries(root / "sys/class/drm", "card[0-9]+"):
        device = card / "device"
        driver = (device / "driver").resolve().name
        memory_bytes = _memory(card) if driver in DRIVERS else 0
        render = next(sysfs.entries(device / "drm", "renderD[0-9]+"), None)
        if memory_bytes and render:
            yield _gpu(root, device, f"/dev/dri/{render.name}", driver, memory_bytes)
    for accel in sysfs.entries(root / "sys/class/accel", "accel[0-9]+"):
        if sysfs.number(accel / "device/vendor") == HABANA:
            yield _gaudi(root, accel)


def _gpu(root: Path, device: Path, node: str, driver: str, memory_bytes: int) -> Accelerator:
    functions = sysfs.number(device / "sriov_numvfs")
    cut = f"it is cut into {functions} virtual functions, which are lent in its place" if functions else ""
    broken = "its firmware is in survivability mode" if (device / "survivability_mode").exists() else ""
    return Accelerator(
        kind=INTEL,
        name=device.resolve().name,  # its address on PCI
        model=f"Intel GPU {sysfs.number(device / 'device'):04x} ({driver})",
        memory_bytes=memory_bytes,
        edits=ContainerEdits(nodes=sysfs.own_nodes(node), groups=sysfs.groups_of(root, node)),
        problem=cut or broken or sysfs.missing_node(root, node),
        sensors=device,
    )


def _memory(card: Path) -> int:
    """Return the bytes of the GPU's own memory, 0 where it shares that of the machine.

    Mainline i915 does not say: then it is the window to that memory on PCI, at least.
    """
    tiles = sysfs.entries(card / "device", "tile[0-9]+")
    in_tiles = sum(sysfs.number(tile / "physical_vram_size_bytes") for tile in tiles)
    return in_tiles or sysfs.number(card / "lmem_total_bytes") or _window(card / "device")


def _window(device: Path) -> int:
    lines = sysfs.text(device / "resource").splitlines()
    if len(lines) <= LOCAL_MEMORY_BAR or (device.resolve().name.startswith("0000:00:02.")):
        return 0  # that of a GPU in the processor is a part of the machine's memory
    found = re.match(r"(0x[0-9a-f]+) (0x[0-9a-f]+)", lines[LOCAL_MEMORY_BAR])
    first, last = (sysfs.number_in(found[1]), sysfs.number_in(found[2])) if found else (0, 0)
    return last - first + 1 if last > first else 0


def _gaudi(root: Path, accel: Path) -> Accelerator:
    model, status = sysfs.text(accel / "device/device_type"), sysfs.text(accel / "device/status")
    index = accel.name.removeprefix("accel")
    nodes = (f"/dev/accel/accel{index}", f"/dev/accel/accel_controlD{index}")
    broken = "" if status in OPERATIONAL else f"its driver says {status}"
    return Accelerator(
        kind=GAUDI,
        name=sysfs.text(accel / "device/pci_addr") or accel.name,
        model=f"Intel {model or 'Gaudi'}",
        memory_bytes=GAUDI_BYTES.get(model.upper(), 0),
        edits=ContainerEdits(nodes=sysfs.own_nodes(*nodes), groups=sysfs.groups_of(root, *nodes)),
        problem=broken or sysfs.missing_node(root, *nodes),
    )
