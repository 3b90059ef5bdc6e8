"""Gives a container that joined a sandbox its own host name, from the host: the engine gives it the sandbox's.

It has a UTS namespace of its own all the same, so the name can be set there; nothing of the image is run for it. Needs
root and the engine's own processes in sight.
"""

import ctypes
import os
import socket
import threading
from typing import Final

from hostworker.privileged.base import ContainerFiles
from resources import procfs

SANDBOX_HOSTNAME: Final = "gp-sandbox"
CLONE_NEWUTS: Final = 0x04000000  # linux/sched.h

_libc = ctypes.CDLL(None, use_errno=True)


def can_name(container: ContainerFiles) -> bool:
    """Return whether this process may name the running container, as the engine inspected it."""
    try:
        return os.geteuid() == 0 and is_process_of(container) and os.access(container.hosts_path, os.W_OK)
    except OSError:
        return False


def give_name(container: ContainerFiles, hostname: str) -> None:
    """Set the host name of the running container and write it to /etc/hostname and /etc/hosts; safe to repeat.

    Raises OSError, also when the container has ended meanwhile.
    """
    container.hostname_path.write_text(f"{hostname}\n")
    # Written in place: the container has this very file mounted.
    hosts = container.hosts_path.read_text().replace(f"\t{SANDBOX_HOSTNAME}\n", f"\t{hostname}\n")
    container.hosts_path.write_text(hosts)
    namespace = os.open(f"/proc/{container.pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Looked at after opening: a process id that has passed on to another would otherwise name that one's host.
        if not is_process_of(container):
            raise ProcessLookupError("The container has ended.")
        _set_hostname(namespace, hostname)
    finally:
        os.close(namespace)


def is_process_of(container: ContainerFiles) -> bool:
    """Return whether the process id that the engine named belongs, here too, to the container's main process."""
    return container.container_id in procfs.text(f"{container.pid}/cgroup")


def _set_hostname(namespace: int, hostname: str) -> None:
    """Set the name within the UTS namespace of the descriptor, in a thread that enters it and then ends."""
    failures: list[OSError] = []

    def enter_and_set() -> None:
        try:
            if _libc.setns(namespace, CLONE_NEWUTS):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            socket.sethostname(hostname)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=enter_and_set, name="hostname")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
