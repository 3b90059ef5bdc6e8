"""What a share of a GPU is in bytes. Pure."""


def share_bytes(gpu_memory_bytes: int, share_milli: int, gpu_milli: int) -> int:
    """Return the memory of a share of `share_milli` milli-fGPU of a device that has `gpu_milli` of them.

    Rounded down, so that the shares of a device never exceed its memory.
    """
    return gpu_memory_bytes * share_milli // gpu_milli
