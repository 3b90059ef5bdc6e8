"""Makes a data folder that a running container has mounted read-only or writable again, or takes it away.

A thread of its own enters the container's mount namespace; nothing of the image is run for it, and no symbolic link of
the container's is followed: what is changed is the very directory that the host knows. Needs root.
"""

import ctypes
import errno
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from hostworker.privileged import processes
from resources import procfs
from resources.procfs import MountEntry

# linux/sched.h, linux/mount.h
CLONE_FS: Final = 0x00000200
CLONE_NEWNS: Final = 0x00020000
MNT_DETACH: Final = 2
UMOUNT_NOFOLLOW: Final = 8
MS_RDONLY: Final = 1
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
_PRESERVED_FLAGS: Final = {  # of statvfs(3): of mount(2)
    os.ST_NOSUID: 2,
    os.ST_NODEV: 4,
    os.ST_NOEXEC: 8,
    os.ST_NOATIME: 1024,
    os.ST_NODIRATIME: 2048,
    os.ST_RELATIME: 1 << 21,
}

HOLDER_SECONDS: Final = 5.0  # for the processes to end that hold what is taken away; one may have begun another
HOLDER_PAUSE_SECONDS: Final = 0.02
_KCMP: Final = {"x86_64": 312, "aarch64": 272}.get(platform.machine(), -1)  # kcmp(2)
_KCMP_VM: Final = 1
_KCMP_FILES: Final = 2

_libc = ctypes.CDLL(None, use_errno=True)


def set_read_only(main_pid: int, source: Path, *, read_only: bool) -> bool:
    """Make every mount of the host's directory `source` in the container read-only, or writable.

    Return False where a file in it is open for writing, so that the kernel refuses (EBUSY). A container that has ended,
    or has no such mount, is a success. Raises OSError.
    """
    wrong = [mount for mount in _mounts(main_pid, source) if mount.is_read_only != read_only]
    if not wrong:
        return True
    wanted = source.stat()
    namespace = os.open(f"/proc/{main_pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Looked at after opening: another process may have got the process id meanwhile.
        if not processes.container_of(main_pid):
            return True
        for mount in wrong:
            _in_namespace(namespace, lambda mount=mount: _remount(mount.point, wanted, read_only))  # type: ignore[misc]
    except BlockingIOError:
        return False
    finally:
        os.close(namespace)
    return True


def end_writers(main_pid: int, source: Path) -> list[str]:
    """End the container's processes that have a file of the directory `source` open for writing; return their names.

    Those that are not found in HOLDER_SECONDS, since so much is open, are left.
    """
    numbers = {mount.number for mount in _mounts(main_pid, source)}
    container = processes.container_of(main_pid)
    deadline = time.monotonic() + HOLDER_SECONDS
    ended = []
    for pid in _processes_of(container) if container and numbers else ():
        if any(_writes(entry, numbers) for entry in _open_files(pid, deadline)):
            with suppress(OSError):
                name = procfs.name_of(pid)
                os.kill(pid, signal.SIGTERM)
                ended.append(name)
    return ended


def take_away(main_pid: int, source: Path) -> list[str]:
    """Detach the directory `source` from the container, and end the processes that still hold something of it.

    They hold it by an open or mapped file, or by their working directory. Return their names. May be called again
    after an attempt that was cut off. A container that has ended is a success; raises OSError, also where processes
    hold it still.
    """
    container = processes.container_of(main_pid)
    if not container:
        return []
    wanted = source.stat()
    if found := _mounts(main_pid, source):
        namespace = os.open(f"/proc/{main_pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if processes.container_of(main_pid) != container:
                return []
            for mount in found:
                _in_namespace(namespace, lambda mount=mount: _detach(mount.point, wanted))  # type: ignore[misc]
        finally:
            os.close(namespace)
    ended: dict[int, str] = {}  # by process: one that was killed may be seen again before it is gone
    deadline = time.monotonic() + HOLDER_SECONDS
    while holders := _holders(container, {mount.number for mount in procfs.mounts(main_pid)}, wanted.st_dev, deadline):
        ended |= {pid: name for pid in holders if (name := _killed(pid))}
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"processes of the container hold {source} still")
        time.sleep(HOLDER_PAUSE_SECONDS)
    return list(ended.values())


def super_options(main_pid: int, point: str, kind: str) -> str | None:
    """Return the options of the file system of this kind that a container has mounted there; None: it has none."""
    found = (mount.super_options for mount in procfs.mounts(main_pid) if (mount.point, mount.kind) == (point, kind))
    return next(found, None)


def remount(main_pid: int, point: str, options: str) -> None:
    """Give the file system that the container has mounted at `point` other options. Raises OSError."""
    namespace = os.open(f"/proc/{main_pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def act() -> None:
        directory = _opened(point)
        try:
            os.fchdir(directory)
            _check(_libc.mount(None, b".", None, ctypes.c_ulong(MS_REMOUNT | _old_flags(directory)), options.encode()))
        finally:
            os.close(directory)

    try:
        if processes.container_of(main_pid):  # looked at after opening, as in `set_read_only`
            _in_namespace(namespace, act)
    finally:
        os.close(namespace)


def _mounts(main_pid: int, source: Path) -> list[MountEntry]:
    """Return the mounts whose root ends like `source`: <owner>/<folder>/files, where the folder's id is unique."""
    ending = "/" + "/".join(source.parts[-3:])
    return [mount for mount in procfs.mounts(main_pid) if mount.root.endswith(ending)]


def _in_namespace(namespace: int, act: Callable[[], None]) -> None:
    """Call `act` in a thread that has entered the mount namespace, and then ends. Raises OSError."""
    failures: list[Exception] = []

    def enter_and_act() -> None:
        try:
            _check(_libc.unshare(CLONE_FS))  # a thread that shares its root directory cannot enter
            _check(_libc.setns(namespace, CLONE_NEWNS))
            act()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=enter_and_act, name="mounts")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _detach(point: str, wanted: os.stat_result) -> None:
    """Detach the mount at `point` if it is the directory with this status."""
    parent, _, name = point.rpartition("/")
    directory = _opened(parent)
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            os.fchdir(directory)  # a directory that something is mounted on cannot be renamed
            _check(_libc.umount2(os.fsencode(name), MNT_DETACH | UMOUNT_NOFOLLOW))
    finally:
        os.close(directory)


def _opened(path: str) -> int:
    """Return a descriptor of a directory of this namespace, without following any symbolic link. Raises OSError."""
    directory = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory = below
    except OSError:
        os.close(directory)
        raise
    return directory


def _remount(point: str, wanted: os.stat_result, read_only: bool) -> None:
    """Change the mount at `point` if it is the directory with this status. Raises BlockingIOError while it is busy."""
    directory = _opened(point)
    try:
        found = os.fstat(directory)
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
            return
        flags = _old_flags(directory) | (MS_RDONLY if read_only else 0)
        os.fchdir(directory)
        try:
            _check(_libc.mount(None, b".", None, ctypes.c_ulong(MS_REMOUNT | MS_BIND | flags), None))
        except OSError as error:
            if error.errno == 16:  # EBUSY
                raise BlockingIOError(error.errno, error.strerror) from error
            raise
    finally:
        os.close(directory)


def _old_flags(directory: int) -> int:
    has = os.fstatvfs(directory).f_flag
    return sum(number for flag, number in _PRESERVED_FLAGS.items() if has & flag)


def _processes_of(container: str) -> Iterator[int]:
    """Return the processes of a container, by their cgroups."""
    for pid in procfs.pids():
        if processes.container_of(pid) == container:
            yield pid


def _open_files(pid: int, deadline: float) -> Iterator[str]:
    """Return the fdinfo of what a process has open, by any of its threads, until the deadline."""
    for task in _with_own(pid, _KCMP_FILES):
        with suppress(OSError), os.scandir(f"/proc/{task}/fdinfo") as entries:
            for entry in entries:
                if time.monotonic() > deadline:
                    return
                yield entry.path


def _writes(fdinfo: str, mounts: set[int]) -> bool:
    """Return whether the descriptor is of a file on one of the mounts, and open for writing."""
    fields = dict(line.split(":", 1) for line in procfs.lines(fdinfo, procfs.FILE_BYTES) if ":" in line)
    flags, number = int(fields.get("flags", "0"), 8), int(fields.get("mnt_id", -1))
    return number in mounts and flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_PATH


def _holders(container: str, mounts: set[int], device: int, deadline: float) -> list[int]:
    """Return the processes that hold something of a file system which lies on none of the container's `mounts`.

    They have it open, mapped, or as their own directory: what remains of a mount that was detached. Raises OSError
    where they have so much open that it takes until the deadline, by the monotonic clock.
    """
    found = []
    for pid in _processes_of(container):
        for link in _held(pid):
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "the container's processes have too much open to be looked at")
            if _is_detached(link, mounts, device):
                found.append(pid)
                break
    return found


def _held(pid: int) -> Iterator[str]:
    """Return the links of /proc to what a process holds, by any of its threads: each may have files of its own."""
    for task in _listed(f"/proc/{pid}/task"):
        yield from (f"/proc/{task}/{name}" for name in ("cwd", "root", "exe"))
    for kind, table in (("fd", _KCMP_FILES), ("map_files", _KCMP_VM)):
        for thread in _with_own(pid, table):
            with suppress(OSError), os.scandir(f"/proc/{thread}/{kind}") as entries:
                yield from (entry.path for entry in entries)


def _with_own(pid: int, table: int) -> Iterator[int]:
    """Return one thread of the process for each table of files, or address space, that its threads have."""
    found: list[int] = []
    for task in map(int, _listed(f"/proc/{pid}/task")):
        if all(_libc.syscall(_KCMP, task, other, table, 0, 0) != 0 for other in found):
            found.append(task)
            yield task


def _is_detached(link: str, mounts: set[int], device: int) -> bool:
    """Return whether the target of a link of /proc lies on the device, and on none of the mounts."""
    try:
        descriptor = os.open(link, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_dev != device:
            return False
        text = os.fsdecode(procfs.read(f"self/fdinfo/{descriptor}"))
    finally:
        os.close(descriptor)
    return int(text.partition("mnt_id:")[2].split()[0]) not in mounts


def _killed(pid: int) -> str:
    """Kill a process and return its name; "" if it has ended by itself."""
    try:
        name = procfs.name_of(pid)
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return ""
    return name


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
