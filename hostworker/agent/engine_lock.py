"""One host worker lends the machine of a container engine: a lock that the kernel ends with its process."""

import socket


class EngineTakenError(Exception):
    """Another host worker lends the machine of this engine; the message says what to do."""


def take(engine_id: str) -> socket.socket:
    """Return the lock of the engine with this id, held until it is closed or the process ends.

    It is an abstract Unix socket: a name that whoever binds it first has, of whatever user and installation, without
    a file that could be left behind. Raises EngineTakenError.
    """
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0gpuplatform-engine-{engine_id}")
    except OSError:
        lock.close()
        raise EngineTakenError(
            "Another host worker, of this or another installation, lends the CPUs, memory and GPUs of this machine, "
            "and both would lend them twice. Give each its part (COMPUTE_HOST_CPU, COMPUTE_HOST_MEMORY, "
            "COMPUTE_HOST_GPUS) and set COMPUTE_SHARED_ENGINE=true."
        ) from None
    return lock
