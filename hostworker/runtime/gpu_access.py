"""How the engine is asked for devices: by CDI where it knows them, else NVIDIA's by their hook (the legacy request).

Those of other vendors are else given part by part, as their finder or CDI specification says.

The legacy hook lets a container use devices behind the engine's back. Where systemd keeps the cgroups, each
`systemctl daemon-reload` writes down the devices that the engine knows of, and takes these away again; so they are
named to the engine as well. The container device interface (CDI) does that by itself.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pynvml

from resources.accelerators.cdi_edits import CdiError
from resources.accelerators.cdi_files import MAX_FILES, bounded
from resources.accelerators.devices import NO_EDITS, Accelerator, ContainerEdits
from resources.accelerators.discovery import NOTHING, AcceleratorSource, Found
from resources.accelerators.kinds import NVIDIA
from resources.accelerators.sysfs import entries, regular_file

DEV: Final = Path("/dev")
CAPABILITIES: Final = Path("/proc/driver/nvidia/capabilities")
# Said to every container, in the words of each vendor's runtime: add nothing. Unset, empty, and "void" mean all devices
# to Habana's (its hook, and `always-mount`).
NO_DEVICES: Final = {
    "NVIDIA_VISIBLE_DEVICES": "void",
    "AMD_VISIBLE_DEVICES": "none",
    "HABANA_VISIBLE_DEVICES": "none",
}
PLAIN_RUNTIMES: Final = frozenset({"runc", "crun", "io.containerd.runc.v2"})
SHARED_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_KIND: Final = re.compile(r'"?kind"?:\s*"?([A-Za-z0-9_./-]+)"?\s*(?:,|$)', re.MULTILINE)
_NAME: Final = re.compile(r'"?name"?:\s*"?([A-Za-z0-9_.:-]+)')
_CAPABILITY_MINOR: Final = re.compile(r"^DeviceFileMinor:\s*([0-9]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAccess:
    """How one container is given its real GPUs; `device_nodes` are named to the engine beside a legacy request.

    Devices of other vendors are asked for by their `cdi_names`, or given by `edits`.
    """

    uses_cdi: bool = False
    device_nodes: tuple[str, ...] = ()
    cdi_names: tuple[str, ...] = ()
    edits: ContainerEdits = NO_EDITS


LEGACY: Final = GpuAccess()


def choose(info: Mapping[str, Any], uuids: Collection[str], dev: Path = DEV) -> GpuAccess:
    """Return how to ask for these devices of NVIDIA's an engine that says `info` of itself."""
    if uuids and {f"{NVIDIA}={uuid}" for uuid in uuids} <= cdi_devices(info):
        return GpuAccess(uses_cdi=True)
    if info.get("CgroupDriver") != "systemd":
        return LEGACY
    return GpuAccess(device_nodes=tuple(f"/dev/{name}" for name in _nodes(uuids) if (dev / name).exists()))


def add_accelerators(access: GpuAccess, info: Mapping[str, Any], devices: Collection[Accelerator]) -> GpuAccess:
    """Return the access with devices of other vendors as well."""
    by_engine = cdi_devices(info)
    names = tuple(each.cdi_name for each in devices if each.cdi_name in by_engine)
    edits = sum((each.edits for each in devices if each.cdi_name not in names), NO_EDITS)
    return replace(access, cdi_names=names, edits=edits)


def runs_hooks(info: Mapping[str, Any]) -> bool:
    """Return whether an engine that says `info` of itself runs containers by another runtime than the plain ones."""
    return info.get("DefaultRuntime", "runc") not in PLAIN_RUNTIMES


def accelerators_here(source: AcceleratorSource | None, info: Mapping[str, Any]) -> Found:
    """Return the accelerators of this host, whose engine says `info` of itself."""
    engine_folder = Path(info.get("DockerRootDir") or "/var/lib/docker")
    return source.find(cdi_devices(info), (engine_folder,)) if source else NOTHING


def cdi_devices(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the CDI devices that the engine knows, as nvidia.com/gpu=GPU-...; none where CDI is off.

    Engines from 28.3 on list them; of others, from 25 on, the specifications in their folders are read.
    """
    listed = info.get("DiscoveredDevices")
    if listed is not None:
        return frozenset(str(device.get("ID")) for device in listed if device.get("Source") == "cdi")
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or ()]
    files = (path for folder in folders for path in islice(entries(folder, r".+\.(json|yaml)"), MAX_FILES))
    return frozenset(name for path in files for name in _names(path))


def _names(path: Path) -> list[str]:
    """Return the full names of the devices of a CDI specification, JSON or YAML."""
    try:
        with regular_file(path) as descriptor:
            text = bounded(descriptor).decode(errors="replace")
    except (OSError, CdiError):
        return []
    kind = _KIND.search(text)
    return [f"{kind[1]}={name}" for name in _NAME.findall(text)] if kind else []


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
