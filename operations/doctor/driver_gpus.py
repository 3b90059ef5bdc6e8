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
    """Return the GPUs that NVML finds, in its order; none where there is no driver, or one that does not answer."""
    try:
        return _ask()
    except pynvml.NVMLError:
        return []


def problem() -> str:
    """Return why the driver does not answer; "" if it does, and if none is installed."""
    try:
        _ask()
    except pynvml.NVMLError as error:
        return "" if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND else str(error)
    return ""


def _ask() -> list[FoundGpu]:
    pynvml.nvmlInit()
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
    finally:
        pynvml.nvmlShutdown()


def names() -> list[str]:
    """Return the models of the GPUs that NVML finds, in its order."""
    return [gpu.name for gpu in find()]
