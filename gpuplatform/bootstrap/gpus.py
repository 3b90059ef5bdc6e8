"""The GPUs that the NVIDIA driver of this machine reports, for messages to the operator only."""

import pynvml


def names() -> list[str]:
    """Return the models of the GPUs that NVML finds, in its order; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
