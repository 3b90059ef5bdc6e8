"""The kernel tier: memory limits of the NVIDIA driver (r615 and later) on the cgroup of a container."""

from collections.abc import Mapping
from pathlib import Path

import pynvml

from hostworker.runtime_protocol import EnforcementError


def apply(limits: Mapping[str, int], cgroup: Path) -> None:
    """Limit what the cgroup may hold, {GPU UUID: bytes}, before the workload begins. Raises EnforcementError.

    Only the hard limit is set: a soft one reserves memory, and its reservation outlives a cgroup that goes without a
    word. The leases add up without it.
    """
    try:
        pynvml.nvmlInit()
        try:
            for uuid, size in limits.items():
                limit = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=bytes(cgroup), softLimit=0, hardLimit=size)
                pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), limit)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise EnforcementError(f"The NVIDIA driver did not take the session's memory limit: {error}.") from error
