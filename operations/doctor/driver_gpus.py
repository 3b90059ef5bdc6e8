"""The GPUs that the NVIDIA driver of this machine reports, for messages to the operator only."""

from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """A GPU by NVML; `is_persistent` says whether its driver stays loaded without a user (persistence mode)."""

    uuid: str
    name: str
    minor: int
    is_persistent: bool


def find() -> list[FoundGpu]:
    """Return the GPUs that NVML finds, in its order; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            FoundGpu(
                uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
                name=str(pynvml.nvmlDeviceGetName(handle)),
                minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
                is_persistent=pynvml.nvmlDeviceGetPersistenceMode(handle) == pynvml.NVML_FEATURE_ENABLED,
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def names() -> list[str]:
    """Return the models of the GPUs that NVML finds, in its order."""
    return [gpu.name for gpu in find()]
