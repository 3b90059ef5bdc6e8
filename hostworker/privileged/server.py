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
from hostworker.privileged.base import ContainerFiles, KernelUse, PrivilegesError
from hostworker.privileged.cluster_network.network import ClusterNetwork
from hostworker.privileged.host_privileges import HostPrivileges
from resources import procfs

AT_ONCE: Final = 8
END_SECONDS: Final = 5.0  # that the end waits for mounts to be taken away
LIMITS_MODE: Final = stat.S_IFREG | 0o444
WHOLE_MACHINE: Final = ["0", "0", "4294967295"]  # /proc/self/uid_map of who is root on the machine itself
_CONTAINER_ID: Final = r"[0-9a-f]{64}"
_DEVICE: Final = r"gp[a-z0-9-]{1,13}"  # the platform's bridges; see container_config.bridge_device
_FILES: Final = r"/[^\0]*/[0-9]+/[a-z2-7]{16}/files"  # as in folders.files.mount_source

Check = Callable[[Any], Any]


class Operations:
    """Checks the arguments of each operation, and has it done by `privileges`.

    `worker_uid` is the user whose files below `fgpu_folder` may be given to root.
    """

    def __init__(self, privileges: HostPrivileges, worker_uid: int, fgpu_folder: Path) -> None:
        self._privileges = privileges
        self._worker_uid = worker_uid
        self._fgpu_folder = fgpu_folder.resolve()

    def answer(self, line: str) -> str:
        """Return the answer to a request, both as lines of JSON. Raises ValueError for what is no request."""
        number, operation, arguments = json.loads(line)
        try:
            result, failure = self._done(operation, arguments), None
        except Exception as error:  # whatever it is, the worker is to hear of it
            result, failure = None, [type(error).__name__, str(error)]
        return json.dumps([number, result, failure], default=_encoded) + "\n"

    def _done(self, operation: str, arguments: list[Any]) -> object:
        checks = CHECKS.get(operation, ())
        if operation not in CHECKS or len(arguments) > len(checks):
            raise PrivilegesError(f"{operation!r} is not among the helper's operations")
        checked = [check(argument) for check, argument in zip(checks, arguments, strict=False)]
        if operation in ("give_to_root", "rewrite_limits"):
            with self._limits_file(*checked[:1]) as path:
                return getattr(self._privileges, operation)(path, *checked[1:])
        if operation == "map_root" and owner_at(*checked).uid != self._worker_uid:
            raise PrivilegesError(f"{arguments[0]!r} is no storage root of the worker's")
        return getattr(self._privileges, operation)(*checked)

    @contextmanager
    def _limits_file(self, path: Path) -> Iterator[Path]:
        """Give a path to the limits file that nobody can exchange meanwhile. Raises PrivilegesError for others."""
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


def _encoded(result: object) -> object:
    """Return the JSON of an operation's result."""
    match result:
        case Path():
            return str(result)
        case frozenset():
            return sorted(result)
        case KernelUse(held=held, limits=limits):
            return [held, limits]
    raise TypeError(f"{result!r} is no result of an operation")


def _matches(pattern: str, kind: str) -> Check:
    """Return the check of a text that the whole of a pattern matches."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise PrivilegesError(f"{value!r} is no {kind}")
        return value

    return check


def _each(check: Check) -> Check:
    """Return the check of a list."""
    return lambda values: list(map(check, values))


def _valid_limits(text: str) -> str:
    """Return the text of a limits file. Raises ValueError."""
    parse_limits(text)
    return text


def _sizes(value: Mapping[str, object]) -> dict[str, int]:
    """Return {GPU UUID: bytes}."""
    return {str(uuid): int(str(size)) for uuid, size in value.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise PrivilegesError(f"{value!r} is no name")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise PrivilegesError(f"{value!r} is neither true nor false")
    return value


def _storage_root(value: object) -> Path:
    path = _absolute(value)
    if not (path / MARKER).is_file():
        raise PrivilegesError(f"{value!r} is no storage root")
    return path


def _absolute(value: object) -> Path:
    path = Path(str(value))
    if not path.is_absolute():
        raise PrivilegesError(f"{value!r} is no storage root")
    return path


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


def _network(value: object) -> str:
    """Return a cluster's network. Raises ValueError."""
    return str(ClusterNetwork.of(str(value)).addresses)


def _pid(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PrivilegesError(f"{value!r} is no process")
    return value


def _files(value: object) -> Path:
    """Return the directory of a folder's files; what is done with it is done in a container alone."""
    return Path(_matches(_FILES, "folder's directory")(value))


def _container(value: list[Any]) -> ContainerFiles:
    """Return the container, whose files must be in a container's folder of the engine's."""
    container_id, pid, hostname_path, hosts_path = value
    folder = Path(hostname_path).parent
    if (
        not re.fullmatch(_CONTAINER_ID, container_id)
        or not re.fullmatch(_CONTAINER_ID, folder.name)  # of the sandbox, where it has joined one
        or [Path(hostname_path), Path(hosts_path)] != [folder / "hostname", folder / "hosts"]
    ):
        raise PrivilegesError(f"{value!r} is no container of the engine's")
    return ContainerFiles(
        container_id=container_id, pid=_pid(pid), hostname_path=folder / "hostname", hosts_path=folder / "hosts"
    )


_hostname: Final = _matches(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", "host name")
_installation: Final = _matches(r"[A-Za-z0-9-]{1,64}", "installation")
_folder: Final = _matches(r"[a-z2-7]{16}", "folder")
_maybe_folder: Final = _matches(r"|[a-z2-7]{16}", "folder")
CHECKS: Final[Mapping[str, tuple[Check, ...]]] = {  # of the arguments of each operation, in their order
    "give_to_root": (Path,),
    "rewrite_limits": (Path, _valid_limits),
    "process_started": (_pid, _pid),
    "container_of": (_pid,),
    "hook_inodes": (_pid,),
    "starts_hooked": (_pid, _each(_amount)),
    "limit_gpu_memory": (_pid, _sizes),
    "can_name": (_container,),
    "give_name": (_container, _hostname),
    "set_mount_read_only": (_pid, _files, _flag),
    "end_mount_writers": (_pid, _files),
    "take_mount_away": (_pid, _files),
    "raise_kernel_limits": (),
    "kernel_use": (_each(_matches(_CONTAINER_ID, "container")),),
    "bound_terminals": (_pid,),
    "firewall_problem": (),
    "hold_firewall": (_matches(_DEVICE, "bridge of the platform's"), _text, _flag),
    "clusters_problem": (),
    "hold_cluster": (_network, str, dict, _installation),
    "join_cluster": (_container, _network, _each(_hostname), _amount),
    "silent_in_cluster": (_container, _network, _each(_amount)),
    "keep_clusters": (_each(_network), _installation),
    "limit_storage": (_storage_root, _amount, _amount, _limit, _limit),
    "map_root": (_absolute, _key),
    "unmap_root": (_key,),
    "purge": (_absolute, _key, _amount, _maybe_folder),
    "folder_usage": (_absolute, _key, _amount, _folder, _limit),
    "bound_files": (_pid, _limit),
}


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
