"""The helper: does privileged operations for one host worker, which asks on standard input. The engine runs it.

A request is a line of JSON, [number, operation, arguments]; its answer, in whatever order, [number, result, null] or
[number, null, [exception, message]]. Nothing but the host worker that started the helper holds the other ends of its
input and output. Every argument is looked at before anything is done: what is served is a list of operations on the
worker's own files and the engine's containers, not root as such.
"""

import json
import os
import re
import select
import stat
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from fgpu.limits import parse_limits
from folders.files.roots import MARKER, owner_at
from folders.files.walk import Usage
from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.cluster_network.network import ClusterNetwork
from hostworker.privileged.host_privileges import HostPrivileges
from resources import procfs

AT_ONCE: Final = 8
END_SECONDS: Final = 5.0  # that the end waits for mounts to be taken away
LIMITS_MODE: Final = stat.S_IFREG | 0o444
WHOLE_MACHINE: Final = ["0", "0", "4294967295"]  # /proc/self/uid_map of who is root on the machine itself
_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")
_DEVICE: Final = re.compile(r"gp[a-z0-9-]{1,13}")  # the platform's bridges; see container_config.bridge_device
_FILES: Final = re.compile(r"/[^\0]*/[0-9]+/[a-z2-7]{16}/files")  # as in folders.files.mount_source
_FOLDER: Final = re.compile(r"[a-z2-7]{16}")
_INSTALLATION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")

Operation = Callable[..., object]


class Operations:
    """Checks the arguments of each operation, and has it done by `privileges`.

    `worker_uid` is the user whose files below `fgpu_folder` may be given to root.
    """

    def __init__(self, privileges: HostPrivileges, worker_uid: int, fgpu_folder: Path) -> None:
        self._privileges = privileges
        self._worker_uid = worker_uid
        self._fgpu_folder = fgpu_folder.resolve()
        self._table: Mapping[str, Operation] = {
            "give_to_root": self._give_to_root,
            "rewrite_limits": self._rewrite_limits,
            "process_started": lambda main_pid, pid: privileges.process_started(_pid(main_pid), _pid(pid)),
            "container_of": lambda pid: privileges.container_of(_pid(pid)),
            "hook_inodes": self._hook_inodes,
            "starts_hooked": lambda pid, hooks: privileges.starts_hooked(_pid(pid), [int(inode) for inode in hooks]),
            "limit_gpu_memory": self._limit_gpu_memory,
            "can_name": lambda container: privileges.can_name(_container(container)),
            "give_name": self._give_name,
            "set_mount_read_only": lambda pid, source, read_only: privileges.set_mount_read_only(
                _pid(pid), _files(source), bool(read_only)
            ),
            "end_mount_writers": lambda pid, source: privileges.end_mount_writers(_pid(pid), _files(source)),
            "take_mount_away": lambda pid, source: privileges.take_mount_away(_pid(pid), _files(source)),
            "raise_kernel_limits": privileges.raise_kernel_limits,
            "kernel_use": self._kernel_use,
            "bound_terminals": lambda pid: privileges.bound_terminals(_pid(pid)),
            "firewall_problem": privileges.firewall_problem,
            "hold_firewall": self._hold_firewall,
            "clusters_problem": privileges.clusters_problem,
            "hold_cluster": lambda network, local, elsewhere, owner: privileges.hold_cluster(
                _network(network), str(local), dict(elsewhere), _installation(owner)
            ),
            "join_cluster": self._join_cluster,
            "silent_in_cluster": lambda container, network, indexes: privileges.silent_in_cluster(
                _container(container), _network(network), list(map(_amount, indexes))
            ),
            "keep_clusters": lambda networks, owner: privileges.keep_clusters(
                list(map(_network, networks)), _installation(owner)
            ),
            "limit_storage": self._limit_storage,
            "map_root": self._map_root,
            "unmap_root": lambda key: privileges.unmap_root(_key(key)),
            "purge": self._purge,
            "folder_usage": self._folder_usage,
            "bound_files": lambda pid, most: privileges.bound_files(_pid(pid), None if most is None else int(most)),
        }

    def answer(self, line: str) -> str:
        """Return the answer to a request, both as lines of JSON. Raises ValueError for what is no request."""
        number, operation, arguments = json.loads(line)
        try:
            if operation not in self._table:
                raise PrivilegesError(f"{operation!r} is not among the helper's operations")
            result, failure = self._table[operation](*arguments), None
        except Exception as error:  # whatever it is, the worker is to hear of it
            result, failure = None, [type(error).__name__, str(error)]
        return json.dumps([number, result, failure]) + "\n"

    def _give_to_root(self, text: str) -> None:
        with self._limits_file(text) as path:
            self._privileges.give_to_root(path)

    def _rewrite_limits(self, text: str, limits: str) -> None:
        parse_limits(limits)
        with self._limits_file(text) as path:
            self._privileges.rewrite_limits(path, limits)

    @contextmanager
    def _limits_file(self, text: str) -> Iterator[Path]:
        """Give a path to the limits file that nobody can exchange meanwhile. Raises PrivilegesError for others."""
        path = Path(text)
        parent = path.parent.resolve()
        if not parent.is_relative_to(self._fgpu_folder):
            raise PrivilegesError(f"{path} is not below {self._fgpu_folder}")
        descriptor = os.open(parent / path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if found.st_uid not in (0, self._worker_uid) or found.st_mode != LIMITS_MODE or found.st_nlink != 1:
                raise PrivilegesError(f"{path} is not a limits file of the worker's")
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def _hook_inodes(self, pid: object) -> list[int] | None:
        found = self._privileges.hook_inodes(_pid(pid))
        return None if found is None else sorted(found)

    def _limit_gpu_memory(self, pid: object, limits: dict[str, object]) -> None:
        self._privileges.limit_gpu_memory(_pid(pid), {str(uuid): int(str(size)) for uuid, size in limits.items()})

    def _give_name(self, container: list[Any], hostname: str) -> None:
        if not _HOSTNAME.fullmatch(hostname):
            raise PrivilegesError(f"{hostname!r} is no host name")
        self._privileges.give_name(_container(container), hostname)

    def _kernel_use(self, containers: list[str]) -> list[object]:
        if not all(_CONTAINER_ID.fullmatch(each) for each in containers):
            raise PrivilegesError(f"{containers!r} are no containers")
        found = self._privileges.kernel_use(containers)
        return [found.held, found.limits]

    def _hold_firewall(self, device: str, worker: object, deny_private: object) -> None:
        if not _DEVICE.fullmatch(device):
            raise PrivilegesError(f"{device!r} is no bridge of the platform's")
        if not isinstance(worker, str):
            raise PrivilegesError(f"{worker!r} is no name")
        if not isinstance(deny_private, bool):
            raise PrivilegesError(f"{deny_private!r} is neither true nor false")
        self._privileges.hold_firewall(device, worker, deny_private)

    def _join_cluster(self, container: list[Any], network: object, names: list[str], index: object) -> None:
        if wrong := [each for each in names if not _HOSTNAME.fullmatch(each)]:
            raise PrivilegesError(f"{wrong[0]!r} is no host name")
        self._privileges.join_cluster(_container(container), _network(network), names, _amount(index))

    def _limit_storage(
        self, root: object, owner: object, project: object, max_bytes: object, max_files: object
    ) -> bool:
        path = Path(str(root))
        if not path.is_absolute() or not (path / MARKER).is_file():
            raise PrivilegesError(f"{root!r} is no storage root")
        most = _limit(max_bytes), _limit(max_files)
        return self._privileges.limit_storage(path, _amount(owner), _amount(project), *most)

    def _map_root(self, root: object, key: object) -> str:
        path = _absolute(root)
        if owner_at(path, _key(key)).uid != self._worker_uid:
            raise PrivilegesError(f"{root!r} is no storage root of the worker's")
        return str(self._privileges.map_root(path, _key(key)))

    def _purge(self, root: object, key: object, holder: object, folder: object = "") -> bool:
        name = _folder(folder) if folder else ""
        return self._privileges.purge(_absolute(root), _key(key), _amount(holder), name)

    def _folder_usage(self, root: object, key: object, holder: object, folder: object, most: object) -> Usage:
        place = _absolute(root), _key(key), _amount(holder), _folder(folder)
        return self._privileges.folder_usage(*place, _limit(most))


def _absolute(value: object) -> Path:
    path = Path(str(value))
    if not path.is_absolute():
        raise PrivilegesError(f"{value!r} is no storage root")
    return path


def _folder(value: object) -> str:
    if not isinstance(value, str) or not _FOLDER.fullmatch(value):
        raise PrivilegesError(f"{value!r} is no folder")
    return value


def _key(value: object) -> str:
    """Return the key of a storage root."""
    try:
        key = uuid.UUID(str(value))
    except ValueError:
        key = None
    if key is None or str(key) != value:
        raise PrivilegesError(f"{value!r} is no key of a storage root")
    return str(key)


def _amount(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PrivilegesError(f"{value!r} is no amount")
    return value


def _limit(value: object) -> int | None:
    return None if value is None else _amount(value)


def _installation(value: object) -> str:
    if not _INSTALLATION.fullmatch(str(value)):
        raise PrivilegesError(f"{value!r} is no installation")
    return str(value)


def _network(value: object) -> str:
    """Return a cluster's network. Raises ValueError."""
    return str(ClusterNetwork.of(str(value)).addresses)


def _pid(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PrivilegesError(f"{value!r} is no process")
    return value


def _files(value: object) -> Path:
    """Return the directory of a folder's files; what is done with it is done in a container alone."""
    if not isinstance(value, str) or not _FILES.fullmatch(value):
        raise PrivilegesError(f"{value!r} is no folder's directory")
    return Path(value)


def _container(value: list[Any]) -> ContainerFiles:
    """Return the container, whose files must be in a container's folder of the engine's."""
    container_id, pid, hostname_path, hosts_path = value
    folder = Path(hostname_path).parent
    if (
        not _CONTAINER_ID.fullmatch(container_id)
        or not _CONTAINER_ID.fullmatch(folder.name)  # of the sandbox, where it has joined one
        or [Path(hostname_path), Path(hosts_path)] != [folder / "hostname", folder / "hosts"]
    ):
        raise PrivilegesError(f"{value!r} is no container of the engine's")
    return ContainerFiles(
        container_id=container_id, pid=_pid(pid), hostname_path=folder / "hostname", hosts_path=folder / "hosts"
    )


def misplaced(expected_namespace: str) -> str:
    """Return why this process is not root where its worker is, as the rest of a sentence; "" where it is."""
    if os.geteuid() != 0 or procfs.text("self/uid_map").split() != WHOLE_MACHINE:
        return "the container engine's root is not root of this machine (it runs rootless)."
    if os.readlink("/proc/self/ns/mnt") != expected_namespace:
        return "the worker's files are not in sight; is it in a container itself?"
    return ""


def serve(operations: Operations) -> None:
    """Answer requests until the input ends."""
    lock = threading.Lock()

    def answer(line: str) -> None:
        try:
            text = operations.answer(line)
        except (TypeError, ValueError) as error:
            sys.stderr.write(f"not a request: {error}\n")  # in the log of the helper's container
            return
        with lock:
            sys.stdout.write(text)
            sys.stdout.flush()

    pool = ThreadPoolExecutor(AT_ONCE)
    for line in sys.stdin:
        pool.submit(answer, line)


def end_with(pid: int, privileges: HostPrivileges) -> None:
    """End this process as soon as that one has ended."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    end(privileges)


def end(privileges: HostPrivileges) -> NoReturn:
    """End this process, with nobody left to hear of what is under way; a file system may hang meanwhile."""
    last = threading.Thread(target=privileges.end, daemon=True)
    last.start()
    last.join(END_SECONDS)
    os._exit(0)


def main() -> None:
    """Say whether this can help, and do so until the worker is gone: WORKER_PID MOUNT_NAMESPACE WORKER_UID FOLDER."""
    worker_pid, namespace, worker_uid, fgpu_folder = sys.argv[1:]
    privileges = HostPrivileges()
    threading.Thread(target=end_with, args=(int(worker_pid), privileges), daemon=True).start()
    problem = misplaced(namespace)
    sys.stdout.write(json.dumps([0, problem, None]) + "\n")
    sys.stdout.flush()
    if not problem:
        serve(Operations(privileges, int(worker_uid), Path(fgpu_folder)))
    end(privileges)


if __name__ == "__main__":
    main()
