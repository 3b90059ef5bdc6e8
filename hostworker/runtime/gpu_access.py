"""How the engine is asked for GPUs: by CDI where it knows them, else by NVIDIA's runtime hook (the legacy request).

The legacy hook lets a container use devices behind the engine's back. Where systemd keeps the cgroups, each
`systemctl daemon-reload` writes down the devices that the engine knows of, and takes these away again; so they are
named to the engine as well. The container device interface (CDI) does that by itself.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

CDI_KIND: Final = "nvidia.com/gpu"
DEV: Final = Path("/dev")
CAPABILITIES: Final = Path("/proc/driver/nvidia/capabilities")
SHARED_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_KIND: Final = re.compile(rf'"?kind"?:\s*"?{re.escape(CDI_KIND)}"?\s*(?:,|$)', re.MULTILINE)
_NAME: Final = re.compile(r'"?name"?:\s*"?([A-Za-z0-9_.:-]+)')
_CAPABILITY_MINOR: Final = re.compile(r"^DeviceFileMinor:\s*([0-9]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAccess:
    """How one container is given its real GPUs; `device_nodes` are named to the engine beside a legacy request."""

    uses_cdi: bool = False
    device_nodes: tuple[str, ...] = ()


LEGACY: Final = GpuAccess()


def choose(info: Mapping[str, Any], uuids: Collection[str], dev: Path = DEV) -> GpuAccess:
    """Return how to ask for these devices an engine that says `info` of itself."""
    if uuids and {f"{CDI_KIND}={uuid}" for uuid in uuids} <= cdi_devices(info):
        return GpuAccess(uses_cdi=True)
    if info.get("CgroupDriver") != "systemd":
        return LEGACY
    return GpuAccess(device_nodes=tuple(f"/dev/{name}" for name in _nodes(uuids) if (dev / name).exists()))


def cdi_devices(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of NVIDIA's CDI devices that the engine knows, as nvidia.com/gpu=GPU-...; none where CDI is off.

    Engines from 28.3 on list them; of others, from 25 on, the specifications in their folders are read.
    """
    listed = info.get("DiscoveredDevices")
    if listed is not None:
        return frozenset(str(device.get("ID")) for device in listed if device.get("Source") == "cdi")
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or ()]
    files = [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in {".json", ".yaml"}]
    return frozenset(f"{CDI_KIND}={name}" for path in files for name in _names(path))


def _names(path: Path) -> list[str]:
    """Return what a CDI specification of NVIDIA's, JSON or YAML, calls its devices."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return _NAME.findall(text) if _KIND.search(text) else []


def _nodes(uuids: Collection[str]) -> list[str]:
    """Return the device nodes, below /dev, of these GPUs and MIG instances; none where NVML does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        own = [node for uuid in uuids for node in _own_nodes(pynvml.nvmlDeviceGetHandleByUUID(uuid))]
    except (pynvml.NVMLError, OSError):
        return []
    finally:
        pynvml.nvmlShutdown()
    return [*SHARED_NODES, *dict.fromkeys(own)]


def _own_nodes(handle: Any) -> list[str]:
    if not pynvml.nvmlDeviceIsMigDeviceHandle(handle):
        return [f"nvidia{pynvml.nvmlDeviceGetMinorNumber(handle)}"]
    minor = pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
    instance = CAPABILITIES / f"gpu{minor}/mig/gi{pynvml.nvmlDeviceGetGpuInstanceId(handle)}"
    compute = instance / f"ci{pynvml.nvmlDeviceGetComputeInstanceId(handle)}"
    minors = [_CAPABILITY_MINOR.search((folder / "access").read_text()) for folder in (instance, compute)]
    return [f"nvidia{minor}", *(f"nvidia-caps/nvidia-cap{found[1]}" for found in minors if found)]
