"""Discover this machine's cores, memory and devices, from the kernel and NVML, or simulated if configured."""

import logging
import os
import platform
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from fgpu.simulated import DRIVER as SIMULATED_DRIVER
from resources.accelerators.devices import Accelerator
from resources.accelerators.discovery import NOTHING, Found
from resources.accelerators.kinds import NVIDIA
from resources.amounts.units import bytes_from
from resources.gpus import simulated as simulated_gpus
from resources.gpus.memory import device_memory
from resources.gpus.nvml_topology import nvml_topology
from resources.gpus.tiers import Tier, detect
from resources.gpus.topology import UNKNOWN_TOPOLOGY, GpuTopology

logger = logging.getLogger(__name__)

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}  # names of kernel and of images
NO_GPUS: Final = "none"  # in place of names of GPUs
_NAMESPACE: Final = uuid.UUID("6f1cb1c5-4b54-4b0e-8d27-0a3a55a3d0f6")  # of simulated GPUs' UUIDs, which are stable


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as discovered: `memory` are the bytes that can be lent, `index` as in NVML; others come after those."""

    uuid: str
    index: int
    name: str
    memory: int
    is_simulated: bool = False
    tier: Tier = Tier.HOOK  # of its shares
    kind: str = NVIDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Resources of a host for sessions: cores, memory in bytes and devices, of each kind that it has."""

    cpu: int
    memory: int
    devices: tuple[Device, ...]
    architecture: str = ""  # of its CPU, as images name it; "" if not known
    topology: GpuTopology = UNKNOWN_TOPOLOGY  # of the devices; empty where the driver does not say
    driver: str = ""  # version of that of the devices; "" where there are none


def this_machine(
    *,
    host_name: str,
    simulated: str,
    cpu: int = 0,
    memory: str = "",
    gpus: Collection[str] = (),
    can_hook: bool = True,
    context_bytes: int = 0,
    accelerators: Found = NOTHING,
) -> Machine:
    """Return the resources of this machine; `cpu` and `memory`, if given, limit them, and so do the names `gpus`.

    `simulated` is the value of COMPUTE_SIMULATED_GPUS, for machines without real GPUs. Without the hook no GPU can be
    divided. `context_bytes`, those of a CUDA context, are kept back on each real GPU. `accelerators` are those of
    other vendors. Raises ValueError on malformed values.
    """
    if cpu < 0:
        raise ValueError(f"{cpu} is not a number of CPU cores to lend")
    real = nvml_devices(can_hook=can_hook, context_bytes=context_bytes)
    nvidia = real or simulated_devices(simulated, host_name, can_hook=can_hook)
    last = max((each.index for each in nvidia), default=-1)
    devices = _chosen((*nvidia, *whole_devices(accelerators.accelerators, last)), gpus)
    all_cpu, all_memory = len(os.sched_getaffinity(0)), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=min(cpu or all_cpu, all_cpu),
        memory=min(bytes_from(memory) if memory else all_memory, all_memory),
        devices=devices,
        architecture=ARCHITECTURES.get(platform.machine(), platform.machine()),
        topology=_topology(devices, simulated),
        driver=_driver(devices),
    )


def _driver(devices: Sequence[Device]) -> str:
    """Return the version of the driver of these devices; "" without any, or where it does not say."""
    if any(device.is_simulated for device in devices):
        return SIMULATED_DRIVER
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ""
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""
    finally:
        pynvml.nvmlShutdown()


def whole_devices(accelerators: Sequence[Accelerator], last_index: int = -1) -> list[Device]:
    """Return what no hook can divide, so that each is lent as a whole; they come after that index."""
    return [
        Device(uuid=each.uid, index=index, name=each.model, memory=each.memory_bytes, tier=Tier.NONE, kind=each.kind)
        for index, each in enumerate(accelerators, last_index + 1)
    ]


def _topology(devices: Sequence[Device], simulated: str) -> GpuTopology:
    """Return how these devices are connected, as far as they are NVIDIA's."""
    indexes = [device.index for device in devices if device.kind == NVIDIA]
    if any(device.is_simulated for device in devices):
        return simulated_gpus.topology(simulated_gpus.declared(simulated)).part(indexes)
    return nvml_topology(indexes)


def _chosen(devices: tuple[Device, ...], names: Collection[str]) -> tuple[Device, ...]:
    """Return the devices with these UUIDs or indexes, all where there is no name; one that is missing may be broken."""
    if [*names] == [NO_GPUS]:
        return ()
    if missing := set(names) - {name for device in devices for name in (device.uuid, str(device.index))}:
        known = ", ".join(device.uuid for device in devices) or "none"
        logger.error("COMPUTE_HOST_GPUS: %s not found; the GPUs here: %s", ", ".join(sorted(missing)), known)
    return tuple(device for device in devices if not names or {device.uuid, str(device.index)} & {*names})


def nvml_devices(*, can_hook: bool = True, context_bytes: int = 0) -> tuple[Device, ...]:
    """Return the GPUs that the NVIDIA driver reports, in its order; () without a driver.

    A GPU in MIG mode is replaced by its instances, with its index. Of each one's memory, `context_bytes` are kept back.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        logger.info("no NVIDIA driver: %s", error)
        return ()
    try:
        handles = ((index, handle) for index in range(pynvml.nvmlDeviceGetCount()) for handle in _handles(index))
        found = [_nvml_device(index, handle, can_hook, context_bytes) for index, handle in handles]
        return tuple(device for device in found if device)
    finally:
        pynvml.nvmlShutdown()


def has_nvidia_gpu() -> bool:
    """Return whether the NVIDIA driver is here and reports a GPU."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        return int(pynvml.nvmlDeviceGetCount()) > 0
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()


def simulated_devices(text: str, host_name: str, *, can_hook: bool = True) -> tuple[Device, ...]:
    """Return the GPUs that a text declares (`simulated_gpus.declared`). Raises ValueError if malformed."""
    memories = [part.memory_bytes for part in simulated_gpus.declared(text) for _ in range(part.count)]
    return tuple(
        Device(
            uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{host_name}/{index}')}",
            index=index,
            name="Simulated GPU",
            memory=memory,
            is_simulated=True,
            tier=Tier.HOOK if can_hook else Tier.NONE,
        )
        for index, memory in enumerate(memories)
    )


def _handles(index: int) -> list[Any]:
    """Return the handles of the GPU's MIG instances, or its own; [] if it fails, so that other GPUs stay usable."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return _mig_instances(handle) if _is_cut(handle) else [handle]
    except pynvml.NVMLError as error:
        logger.warning("GPU %d does not respond and is left out: %s", index, error)
        return []


def _is_cut(handle: Any) -> bool:
    try:
        mode: int = pynvml.nvmlDeviceGetMigMode(handle)[0]
    except pynvml.NVMLError:  # most GPUs do not support MIG
        return False
    return mode == int(pynvml.NVML_DEVICE_MIG_ENABLE)


def _mig_instances(handle: Any) -> list[Any]:
    instances = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(pynvml.NVMLError_NotFound):  # no instance at this index
            instances.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return instances


def _nvml_device(index: int, handle: Any, can_hook: bool, context_bytes: int) -> Device | None:
    """Return the GPU or MIG instance, or None if it fails."""
    try:
        found: str = pynvml.nvmlDeviceGetUUID(handle)
        return Device(
            uuid=found,
            index=index,
            name=pynvml.nvmlDeviceGetName(handle),
            memory=device_memory(handle).allocatable_bytes(context_bytes),
            tier=Tier.MIG if can_hook and found.startswith("MIG-") else detect(handle, can_hook=can_hook),
        )
    except pynvml.NVMLError as error:
        logger.warning("GPU %d does not respond and is left out: %s", index, error)
        return None
