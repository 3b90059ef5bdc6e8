"""Folders as the kernel and administrators make them: sysfs, /dev and CDI specifications."""

import json
import os
import stat
from pathlib import Path
from typing import Any

GIB = 1 << 30


def write(root: Path, files: dict[str, object]) -> Path:
    """Write files below the root, by their paths; a number is written as one."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def amd_gpu(root: Path, node: int, minor: int, unique_id: int, memory: int = 64 * GIB, **said: int) -> None:
    """Add a node of KFD's topology with its render node."""
    words = {"simd_count": 256, "drm_render_minor": minor, "unique_id": unique_id, "gfx_target_version": 90402}
    here = f"sys/class/kfd/kfd/topology/nodes/{node}"
    banks = {0: (1, memory), 1: (2, 0), 2: (3, 99)}
    write(
        root,
        {
            f"{here}/properties": "\n".join(f"{name} {value}" for name, value in {**words, **said}.items()),
            **{
                f"{here}/mem_banks/{bank}/properties": f"heap_type {heap}\nsize_in_bytes {size}"
                for bank, (heap, size) in banks.items()
            },
            "dev/kfd": "",
            f"dev/dri/renderD{minor}": "",
        },
    )


def pci(root: Path, address: str, files: dict[str, object], driver: str, link: str) -> Path:
    """Add a device on PCI with its driver, and a link to it; return its folder."""
    device = root / "sys/devices" / address
    write(device, files)
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)
    place = root / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(device)
    return device


def node(folder: Path, name: str, *, major: int = 1, minor: int = 5, mode: int = 0o666) -> Path:
    """Make a character device: /dev/zero under another name, or another of the kernel's own by its numbers."""
    path = folder / name
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    path.chmod(mode)
    return path


def spec(folder: Path, devices: list[dict[str, Any]], name: str = "npu.json", **more: Any) -> Path:
    """Write a CDI specification of example.com/npu."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    path = folder / name
    path.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "example.com/npu", "devices": devices} | more))
    path.chmod(0o644)
    return path


def device(name: str, *nodes: Path, memory: str = "16GiB", **edits: Any) -> dict[str, Any]:
    """Return a device of a specification."""
    return {
        "name": name,
        "annotations": {"gpuplatform/model": "Example NPU", "gpuplatform/memory": memory},
        "containerEdits": {"deviceNodes": [{"path": f"/dev/{each.name}", "hostPath": str(each)} for each in nodes]}
        | edits,
    }
