"""The operations that need root on the host, for a process that is root itself: a host worker, or its helper."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from fgpu import limits
from hostworker.privileged import (
    firewall,
    hostnames,
    kernel_limits,
    kernel_objects,
    layers,
    memory_limits,
    mounts,
    processes,
)
from hostworker.privileged.base import ContainerFiles, KernelUse
from hostworker.privileged.cluster_network.cluster_privileges import ClusterPrivileges
from hostworker.privileged.storage_roots.storage_privileges import StoragePrivileges
from hostworker.runtime_protocol import EnforcementError


class HostPrivileges(StoragePrivileges, ClusterPrivileges):
    """Root on this host, for what a host worker needs it for: here containers and processes. Safe for many threads.

    Every method may raise PrivilegesError, save those that return a problem. `helper.HelperPrivileges` has all of it
    done by another process.
    """

    def problem(self) -> str:
        """Return why nothing can be done as root here, as the rest of a sentence; "" where all can."""
        return "" if os.geteuid() == 0 else "its worker does not run as root."

    def give_to_root(self, path: Path) -> None:
        """Make root the owner of a limits file of the worker's, as the hook demands; already so is success."""
        os.chown(path, 0, 0)

    def rewrite_limits(self, path: Path, text: str) -> None:
        """Replace the text of a limits file that is root's, in place, as containers have it mounted."""
        limits.rewrite(path, text)

    def process_started(self, main_pid: int, pid: int) -> int | None:
        """Return when a process of the container started, by its id there, as /proc/<pid>/stat counts; None: ended."""
        return processes.started_in(main_pid, pid)

    def container_of(self, pid: int) -> str:
        """Return the id of the container that the process is in; "" for none, or when it has ended."""
        return processes.container_of(pid)

    def hook_inodes(self, pid: int) -> frozenset[int] | None:
        """Return the inodes that the process has mapped under the hook's name; None when it has ended."""
        return processes.hook_inodes(pid)

    def starts_hooked(self, main_pid: int, hooks: Collection[int]) -> bool | None:
        """Return whether a container that was just started has one of the inodes `hooks` mapped; None when it ended.

        Waits until that is certain.
        """
        return processes.starts_hooked(main_pid, hooks)

    def limit_gpu_memory(self, main_pid: int, bytes_by_uuid: Mapping[str, int]) -> None:
        """Have the NVIDIA driver limit the container's cgroup, {GPU UUID: bytes}. Raises EnforcementError."""
        cgroup = processes.cgroup_of(main_pid)
        if cgroup is None:
            raise EnforcementError("Its memory limit needs a host with cgroup v2.")
        memory_limits.apply(bytes_by_uuid, cgroup)

    def can_name(self, container: ContainerFiles) -> bool:
        """Return whether `give_name` can work for this container."""
        return hostnames.can_name(container)

    def give_name(self, container: ContainerFiles, hostname: str) -> None:
        """Set the container's host name, also in /etc/hostname and /etc/hosts. Raises OSError, too when it ended."""
        hostnames.give_name(container, hostname)

    def set_mount_read_only(self, main_pid: int, source: Path, read_only: bool) -> bool:
        """Make the container's mounts of a folder's files read-only or writable; False while a file is being written.

        Raises OSError; one of a container that has ended is no error, here and below.
        """
        return mounts.set_read_only(main_pid, source, read_only=read_only)

    def end_mount_writers(self, main_pid: int, source: Path) -> list[str]:
        """End the container's processes that have a file of the folder open for writing; return their names."""
        return mounts.end_writers(main_pid, source)

    def take_mount_away(self, main_pid: int, source: Path) -> list[str]:
        """Detach a folder's files from the container, and end what still holds them; return their names."""
        return mounts.take_away(main_pid, source)

    def raise_kernel_limits(self) -> None:
        """Raise the kernel's limits that all sessions share; those that may not be written stay as they are."""
        kernel_limits.raise_limits()

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        """Return what these containers, by id, hold of what the kernel limits for all of them together."""
        return kernel_objects.kernel_use(containers)

    def bound_terminals(self, main_pid: int) -> None:
        """Bound the pseudo-terminals of a container. Raises OSError."""
        kernel_limits.bound_terminals(main_pid)

    def firewall_problem(self) -> str:
        """Return why no packet filter rules can be kept on this host, or "" where they can."""
        return firewall.problem()

    def hold_firewall(self, device: str, worker: str, deny_private: bool) -> None:
        """Have the rules for the bridge in place; changes nothing where they are. Raises FirewallError.

        With `deny_private`, they keep containers from private networks too, until the same `worker` takes it back.
        """
        firewall.Firewall(device, worker=worker, deny_private=deny_private).hold()

    def bound_files(self, main_pid: int, max_files: int | None) -> int | None:
        """Return how many files the container's writable layer has, None where that is not known.

        Its file system refuses more than `max_files` from now on if it can, else the count ends just beyond them.
        """
        return layers.bound_files(main_pid, max_files)
