"""The operations that need root on the host, and nothing else that does. No Django."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from folders.files.walk import Usage


class PrivilegesError(OSError):
    """A privileged operation could not be carried out; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """What each container holds, {container id: {kind: number}}, and how much all may hold together, {kind: number}."""

    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFiles:
    """A running container and the files on the host that hold its names."""

    container_id: str
    pid: int  # of its main process, in the host's pid namespace
    hostname_path: Path
    hosts_path: Path

    @classmethod
    def of(cls, inspected: Mapping[str, Any]) -> "ContainerFiles":
        """Return what the engine's answer to an inspection names."""
        return cls(
            container_id=str(inspected["Id"]),
            pid=int(inspected["State"]["Pid"]),
            hostname_path=Path(inspected["HostnamePath"]),
            hosts_path=Path(inspected["HostsPath"]),
        )


class HostPrivileges(Protocol):
    """Root on this host, for what a host worker needs it for. Safe to use from many threads.

    Every method may raise PrivilegesError, save the two that return a problem.
    """

    def problem(self) -> str:
        """Return why nothing can be done as root here, as the rest of a sentence; "" where all can."""

    def give_to_root(self, path: Path) -> None:
        """Make root the owner of a limits file of the worker's, as the hook demands; already so is success."""

    def rewrite_limits(self, path: Path, text: str) -> None:
        """Replace the text of a limits file that is root's, in place, as containers have it mounted."""

    def process_started(self, main_pid: int, pid: int) -> int | None:
        """Return when a process of the container started, by its id there, as /proc/<pid>/stat counts; None: ended."""

    def container_of(self, pid: int) -> str:
        """Return the id of the container that the process is in; "" for none, or when it has ended."""

    def hook_inodes(self, pid: int) -> frozenset[int] | None:
        """Return the inodes that the process has mapped under the hook's name; None when it has ended."""

    def starts_hooked(self, main_pid: int, hooks: Collection[int]) -> bool | None:
        """Return whether a container that was just started has one of the inodes `hooks` mapped; None when it ended.

        Waits until that is certain.
        """

    def limit_gpu_memory(self, main_pid: int, bytes_by_uuid: Mapping[str, int]) -> None:
        """Have the NVIDIA driver limit the container's cgroup, {GPU UUID: bytes}. Raises EnforcementError."""

    def can_name(self, container: ContainerFiles) -> bool:
        """Return whether `give_name` can work for this container."""

    def give_name(self, container: ContainerFiles, hostname: str) -> None:
        """Set the container's host name, also in /etc/hostname and /etc/hosts. Raises OSError, too when it ended."""

    def set_mount_read_only(self, main_pid: int, source: Path, read_only: bool) -> bool:
        """Make the container's mounts of a folder's files read-only or writable; False while a file is being written.

        Raises OSError; one of a container that has ended is no error, here and below.
        """

    def end_mount_writers(self, main_pid: int, source: Path) -> list[str]:
        """End the container's processes that have a file of the folder open for writing; return their names."""

    def take_mount_away(self, main_pid: int, source: Path) -> list[str]:
        """Detach a folder's files from the container, and end what still holds them; return their names."""

    def raise_kernel_limits(self) -> None:
        """Raise the kernel's limits that all sessions share; those that may not be written stay as they are."""

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        """Return what these containers, by id, hold of what the kernel limits for all of them together."""

    def bound_terminals(self, main_pid: int) -> None:
        """Bound the pseudo-terminals of a container. Raises OSError."""

    def firewall_problem(self) -> str:
        """Return why no packet filter rules can be kept on this host, or "" where they can."""

    def hold_firewall(self, device: str, worker: str, deny_private: bool) -> None:
        """Have the rules for the bridge in place; changes nothing where they are. Raises FirewallError.

        With `deny_private`, they keep containers from private networks too, until the same `worker` takes it back.
        """

    def limit_storage(self, root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> bool:
        """Have the file system of a storage root limit what the owner's directory on it holds, None: not at all.

        `project` is `folders.files.kernel_quota.project_number` of both. Return False where it enforces no quota.
        """

    def map_root(self, root: Path, key: str) -> Path:
        """Return where a storage root is mounted with its owner's files as the container user's, there from now on.

        It is the root with this key. Raises OSError with a sentence where it cannot be; see idmapped_mounts.
        """

    def unmap_root(self, key: str) -> None:
        """Take that mount away, unless another worker on this host needs it."""

    def purge(self, root: Path, key: str, holder: int, folder: str = "") -> bool:
        """Remove some of what was expunged on a storage root, whoever's it is; return whether nothing is left.

        Of the holder's folders, or where one is named of its trash.
        """

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        """Return what a folder takes, up to about `most` files, with what the worker's user may not look at."""

    def bound_files(self, main_pid: int, max_files: int | None) -> int | None:
        """Return how many files the container's writable layer has, None where that is not known.

        Its file system refuses more than `max_files` from now on if it can, else the count ends just beyond them.
        """
