"""The operations that need root on the host, for a process that is root itself: a host worker, or its helper."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Final
from uuid import UUID

from fgpu import limits
from folders.files import kernel_quota
from folders.files.kernel_quota import KernelQuota
from folders.files.layout import RootDirectory, purge
from folders.files.walk import Usage
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
from hostworker.privileged.base import ContainerFiles, KernelUse, PrivilegesError
from hostworker.privileged.cluster_network import devices, reachability
from hostworker.privileged.cluster_network.network import ClusterNetwork
from hostworker.privileged.idmapped_mounts import IdmappedMounts
from hostworker.runtime_protocol import EnforcementError

MEASURE_SECONDS: Final = 30.0  # for one folder; the worker waits for its helper


class HostPrivileges:
    """Root on this host, for what a host worker needs it for. Safe to use from many threads.

    Every method may raise PrivilegesError, save those that return a problem. `helper.HelperPrivileges` has all of it
    done by another process.
    """

    def __init__(self) -> None:
        self._roots = IdmappedMounts()

    def end(self) -> None:
        """Take away the mounts of storage roots that this process alone needs."""
        self._roots.release_all()

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

    def clusters_problem(self) -> str:
        """Return why no members of clusters can have a network on this host, or "" where they can."""
        return devices.problem()

    def hold_cluster(self, network: str, local: str, elsewhere: Mapping[str, str], owner: str) -> None:
        """Have a cluster's network on this host, whose address is `local`; {address of a member elsewhere: its host's}.

        `owner` is the installation. Changes nothing where it is so already. Raises FirewallError.
        """
        table = {IPv4Address(member): ip_address(host) for member, host in elsewhere.items()}
        devices.hold(ClusterNetwork.of(network), ip_address(local), table, owner)

    def join_cluster(self, container: ContainerFiles, network: str, names: Sequence[str], index: int) -> None:
        """Have the container in a network that this host holds, as member `index` of those with these names, from 1.

        Changes nothing where it is. A member knows by address and name all that there may be, also those to come.
        """
        devices.join(container, ClusterNetwork.of(network), names, index)

    def silent_in_cluster(self, container: ContainerFiles, network: str, indexes: Collection[int]) -> list[int]:
        """Return which of these members of its network do not answer to the container."""
        addresses = {ClusterNetwork.of(network).member(index): index for index in indexes}
        return [addresses[address] for address in reachability.silent(container, addresses)]

    def keep_clusters(self, networks: Collection[str], owner: str) -> None:
        """Remove the installation's networks but for these, and have the rules in place. Raises FirewallError."""
        devices.keep([ClusterNetwork.of(each) for each in networks], owner)

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        """Have the file system of a storage root limit what the owner's directory on it holds, None: not at all.

        `project` is `folders.files.kernel_quota.project_number` of both. Return False where it enforces no quota.
        """
        return kernel_quota.limit(root, owner, project, max_bytes, max_files) != KernelQuota.NONE

    def map_root(self, root: Path, key: str) -> Path:
        """Return where a storage root is mounted with its owner's files as the container user's, there from now on.

        It is the root with this key. Raises OSError with a sentence where it cannot be; see idmapped_mounts.
        """
        return self._roots.hold(root, key)

    def unmap_root(self, key: str) -> None:
        """Take that mount away, unless another worker on this host needs it."""
        self._roots.release(key)

    def purge(self, root: Path, key: str, holder: int, folder: str = "") -> bool:
        """Remove some of what was expunged on a storage root, whoever's it is; return whether nothing is left.

        Of the holder's folders, or where one is named of its trash.
        """
        return purge(root, key, holder, folder)

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        """Return what a folder takes, up to about `most` files, with what the worker's user may not look at."""
        deadline = time.monotonic() + MEASURE_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise PrivilegesError(f"{folder} was not measured within {MEASURE_SECONDS:.0f} s")

        with RootDirectory(str(root), UUID(key)).open(holder, folder) as files:
            return files.usage(check, most)

    def bound_files(self, main_pid: int, max_files: int | None) -> int | None:
        """Return how many files the container's writable layer has, None where that is not known.

        Its file system refuses more than `max_files` from now on if it can, else the count ends just beyond them.
        """
        return layers.bound_files(main_pid, max_files)
