"""AMD's GPUs and their partitions, by what the kernel's compute driver (KFD) and amdgpu say in sysfs.

Each node of KFD's topology with SIMD units is a device: a whole GPU in the mode SPX, a partition in DPX, QPX or CPX.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from resources.accelerators import sysfs
from resources.accelerators.devices import Accelerator, ContainerEdits
from resources.accelerators.kinds import AMD

KFD: Final = "/dev/kfd"
TOPOLOGY: Final = "sys/class/kfd/kfd/topology/nodes"
DRM: Final = "sys/class/drm"
LOCAL_HEAPS: Final = (1, 2)  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE
WHOLE: Final = ("", "SPX")


def find(root: Path) -> Iterator[Accelerator]:
    """Yield the devices in the order of their nodes."""
    parts: Counter[int] = Counter()  # seen so far, by the id of the GPU
    mode = ""
    for node in sysfs.entries(root / TOPOLOGY, "[0-9]+"):
        said = sysfs.table(node / "properties")
        minor, unique_id = said.get("drm_render_minor", 0), said.get("unique_id", 0)
        if not said.get("simd_count") or minor < 128 or said.get("cpu_cores_count"):
            continue
        device = root / DRM / f"renderD{minor}" / "device"
        if not unique_id or unique_id not in parts:  # partitions but the first have no PCI device of their own
            first, mode = device, sysfs.text(device / "current_compute_partition")
        part = parts[unique_id]
        parts[unique_id] += 1
        nodes = (KFD, f"/dev/dri/renderD{minor}")
        yield Accelerator(
            kind=AMD,
            name=f"renderD{minor}",
            uid=f"AMD-{unique_id:016x}" + (f"-{part}" if mode not in WHOLE else "") if unique_id else "",
            model=_model(first, said, mode),
            memory_bytes=_memory(node),
            edits=ContainerEdits(nodes=sysfs.own_nodes(*nodes), groups=sysfs.groups_of(root, *nodes)),
            problem=sysfs.missing_node(root, *nodes) or _errors(first),
            sensors=device,
        )


def _model(device: Path, said: dict[str, int], mode: str) -> str:
    """Return the name of the product, and how it is cut."""
    version = said.get("gfx_target_version", 0)
    name = sysfs.text(device / "product_name") or (
        f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x} ({said.get('device_id', 0):04x})"
    )
    memory = sysfs.text(device / "current_memory_partition")
    return f"{name} {mode}{f'/{memory}' if memory else ''}" if mode not in WHOLE else name


def _memory(node: Path) -> int:
    """Return the bytes of the node's own memory."""
    banks = [sysfs.table(bank / "properties") for bank in sysfs.entries(node / "mem_banks", "[0-9]+")]
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in LOCAL_HEAPS)


def _errors(device: Path) -> str:
    """Return which block of the GPU has counted errors that it could not correct since its last reset."""
    for block in sysfs.entries(device / "ras", r"[a-z0-9_]+_err_count"):
        counted = sysfs.table(block)
        if count := counted.get("ue:", 0):
            return f"it has {count} uncorrectable errors ({block.name.removesuffix('_err_count')}); reset it"
    return ""
