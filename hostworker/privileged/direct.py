"""Root on this host, for a process that is root itself: a host worker, or its helper."""

import os
import time
from collections.abc import Collection, Mapping
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
from hostworker.privileged.idmapped_mounts import IdmappedMounts
from hostworker.runtime_protocol import EnforcementError

MEASURE_SECONDS: Final = 30.0  # for one folder; the worker waits for its helper


class DirectPrivileges:
    """Does everything in this process; see HostPrivileges."""

    def __init__(self) -> None:
        self._roots = IdmappedMounts()

    def end(self) -> None:
        """Take away the mounts of storage roots that this process alone needs."""
        self._roots.release_all()

    def problem(self) -> str:
        return "" if os.geteuid() == 0 else "its worker does not run as root."

    def give_to_root(self, path: Path) -> None:
        os.chown(path, 0, 0)

    def rewrite_limits(self, path: Path, text: str) -> None:
        limits.rewrite(path, text)

    def process_started(self, main_pid: int, pid: int) -> int | None:
        return processes.started_in(main_pid, pid)

    def container_of(self, pid: int) -> str:
        return processes.container_of(pid)

    def hook_inodes(self, pid: int) -> frozenset[int] | None:
        return processes.hook_inodes(pid)

    def starts_hooked(self, main_pid: int, hooks: Collection[int]) -> bool | None:
        return processes.starts_hooked(main_pid, hooks)

    def limit_gpu_memory(self, main_pid: int, bytes_by_uuid: Mapping[str, int]) -> None:
        cgroup = processes.cgroup_of(main_pid)
        if cgroup is None:
            raise EnforcementError("Its memory limit needs a host with cgroup v2.")
        memory_limits.apply(bytes_by_uuid, cgroup)

    def can_name(self, container: ContainerFiles) -> bool:
        return hostnames.can_name(container)

    def give_name(self, container: ContainerFiles, hostname: str) -> None:
        hostnames.give_name(container, hostname)

    def set_mount_read_only(self, main_pid: int, source: Path, read_only: bool) -> bool:
        return mounts.set_read_only(main_pid, source, read_only=read_only)

    def end_mount_writers(self, main_pid: int, source: Path) -> list[str]:
        return mounts.end_writers(main_pid, source)

    def take_mount_away(self, main_pid: int, source: Path) -> list[str]:
        return mounts.take_away(main_pid, source)

    def raise_kernel_limits(self) -> None:
        kernel_limits.raise_limits()

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        return kernel_objects.kernel_use(containers)

    def bound_terminals(self, main_pid: int) -> None:
        kernel_limits.bound_terminals(main_pid)

    def firewall_problem(self) -> str:
        return firewall.problem()

    def hold_firewall(self, device: str, worker: str, deny_private: bool) -> None:
        firewall.Firewall(device, worker=worker, deny_private=deny_private).hold()

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        return kernel_quota.limit(root, owner, project, max_bytes, max_files) != KernelQuota.NONE

    def map_root(self, root: Path, key: str) -> Path:
        return self._roots.hold(root, key)

    def unmap_root(self, key: str) -> None:
        self._roots.release(key)

    def purge(self, root: Path, key: str, holder: int, folder: str = "") -> bool:
        return purge(root, key, holder, folder)

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        deadline = time.monotonic() + MEASURE_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise PrivilegesError(f"{folder} was not measured within {MEASURE_SECONDS:.0f} s")

        with RootDirectory(str(root), UUID(key)).open(holder, folder) as files:
            return files.usage(check, most)

    def bound_files(self, main_pid: int, max_files: int | None) -> int | None:
        return layers.bound_files(main_pid, max_files)
