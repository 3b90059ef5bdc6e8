"""Quotas that the kernel enforces on the directory of one owner: project quotas of ext4 and XFS, qgroups of btrfs.

Project quotas: a directory carries a project id that whatever is made in it inherits (FS_IOC_FSSETXATTR with
FS_XFLAG_PROJINHERIT), and the limits of the project are set by quotactl_fd(2), which is Linux 5.14 or newer. btrfs: the
directory is a subvolume of its own, whose qgroup is limited; it counts bytes, not files. No Django.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from folders.files.descriptors import Owner, readable
from folders.files.walk import TreeWalk, WalkEntry

# linux/magic.h
_EXT4: Final = 0xEF53
_XFS: Final = 0x58465342
_BTRFS: Final = 0x9123683E
# linux/quota.h, linux/dqblk_xfs.h
_PROJECT: Final = 2
_SET_QUOTA: Final = 0x800008 << 8 | _PROJECT
_GET_QUOTA: Final = 0x800007 << 8 | _PROJECT
_GET_STATE: Final = ((ord("X") << 8) + 8) << 8 | _PROJECT  # Q_XGETQSTATV
_STATE_VERSION: Final = 1
_STATE_BYTES: Final = 512  # more than any version of fs_quota_statv
_PROJECT_ENFORCED: Final = 1 << 5  # FS_QUOTA_PDQ_ENFD
_LIMITS: Final = struct.Struct("=8QI4x")  # if_dqblk: KiB hard, soft, bytes used; inodes hard, soft, used; times; valid
_SET_FILES: Final = 4  # QIF_ILIMITS
_SET_BOTH: Final = 1 | _SET_FILES  # with QIF_BLIMITS
_QUOTACTL_FD: Final = 443  # the same on every architecture
# linux/fs.h
_GET_ATTRIBUTES: Final = 0x801C581F
_SET_ATTRIBUTES: Final = 0x401C5820
_ATTRIBUTES: Final = struct.Struct("=5I8x")  # fsxattr: flags, extent size, extents, project, copy-on-write extent size
_INHERIT: Final = 0x200
# linux/btrfs.h
_CREATE_SUBVOLUME: Final = 0x5000940E
_SUBVOLUME: Final = struct.Struct("=q4088s")
_LIMIT_QGROUP: Final = 0x8030942B
_QGROUP: Final = struct.Struct("=6Q")  # qgroup (0: of the subvolume), flags, most referenced, exclusive, two reserved
_LIMIT_REFERENCED: Final = 1
_FS_INFO: Final = 0x8400941F
_FS_INFO_BYTES: Final = 1024
_SUBVOLUME_INODE: Final = 256
_UNLIMITED: Final = 2**64 - 1

_PROJECT_BASE: Final = 0x40000000
_OWNER_BITS: Final = 21
_MAX_OWNER: Final = 2**_OWNER_BITS - 1
_MAX_ROOT: Final = 2**9 - 1
_KIB: Final = 1024
_libc: Final = ctypes.CDLL(None, use_errno=True)


class KernelQuota(StrEnum):
    """What the file system of a storage root offers."""

    NONE = "none"
    PROJECT = "project"  # ext4, XFS: bytes and files
    BTRFS = "btrfs"  # bytes


def support_of(folder: int) -> KernelQuota:
    """Return which quotas the file system of an open directory enforces at present. Needs no privileges."""
    kind = _file_system(folder)
    if kind in (_EXT4, _XFS):
        return KernelQuota.PROJECT if _enforces_projects(folder) else KernelQuota.NONE
    if kind == _BTRFS and _qgroups(folder).is_dir():
        return KernelQuota.BTRFS
    return KernelQuota.NONE


def make_subvolume(root: int, name: str, owner: Owner, mode: int) -> None:
    """Make the directory of an owner in the open directory of a root as a subvolume, if that lies on btrfs.

    Elsewhere nothing is done. Raises OSError, FileExistsError if it is there.
    """
    if _file_system(root) != _BTRFS:
        return
    opened = readable(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(opened, _CREATE_SUBVOLUME, bytearray(_SUBVOLUME.pack(0, os.fsencode(name))))
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
    finally:
        os.close(opened)
    try:
        os.fchmod(made, mode)
        owner.take(made)
    finally:
        os.close(made)


def limit(root: Path, owner: int, project: int, max_bytes: int | None, max_files: int | None) -> KernelQuota:
    """Limit what the directory of an owner on a root holds, None: not at all; return by which means.

    `project` is `project_number` of the two. NONE where the file system has no quotas, or the owner no directory yet.
    Tags what is there already, so the first call may take as long as `du`. Needs root. Raises OSError.
    """
    try:
        folder = os.open(root / str(owner), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return KernelQuota.NONE
    try:
        kind = support_of(folder)
        if kind == KernelQuota.PROJECT:
            _tag(folder, project)
            values = (_kib_of(max_bytes), 0, 0, max_files or 0, 0, 0, 0, 0, _SET_BOTH)
            _quotactl(folder, _SET_QUOTA, project, bytearray(_LIMITS.pack(*values)))
        elif kind == KernelQuota.BTRFS and os.fstat(folder).st_ino != _SUBVOLUME_INODE:
            return KernelQuota.NONE  # a plain directory, restored from a backup
        elif kind == KernelQuota.BTRFS:
            most = _UNLIMITED if max_bytes is None else max_bytes
            fcntl.ioctl(folder, _LIMIT_QGROUP, _QGROUP.pack(0, _LIMIT_REFERENCED, most, 0, 0, 0))
        return kind
    finally:
        os.close(folder)


def limit_files(folder: int, max_files: int | None) -> bool:
    """Have the project of an open directory refuse more files than this, None: not at all; its bytes stay as they are.

    Return False where the directory has no project of its own that is enforced. Needs root. Raises OSError.
    """
    if support_of(folder) != KernelQuota.PROJECT:
        return False
    project, is_inherited = project_of(folder)
    if not (project and is_inherited):
        return False
    found = bytearray(_LIMITS.size)
    _quotactl(folder, _GET_QUOTA, project, found)
    if _LIMITS.unpack(found)[3] != (max_files or 0):
        _quotactl(folder, _SET_QUOTA, project, bytearray(_LIMITS.pack(0, 0, 0, max_files or 0, 0, 0, 0, 0, _SET_FILES)))
    return True


def project_number(root_id: int, owner_id: int) -> int:
    """Return the project id of an owner on a root, by the keys of their rows: several roots may lie on one file system.

    It is above those that administrators and other software use to give out. Raises OSError (EOVERFLOW).
    """
    if root_id > _MAX_ROOT or owner_id > _MAX_OWNER:
        raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
    return _PROJECT_BASE | root_id << _OWNER_BITS | owner_id


def project_of(opened: int) -> tuple[int, bool]:
    """Return the project of an open file or directory, and whether what is made in it inherits it. Raises OSError."""
    flags, _, _, project, _ = _ATTRIBUTES.unpack(fcntl.ioctl(opened, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))
    return project, bool(flags & _INHERIT)


def set_project(opened: int, project: int) -> None:
    """Make an open file or directory one of the project; what is made in a directory inherits it. Raises OSError."""
    flags, size, extents, _, other = _ATTRIBUTES.unpack(fcntl.ioctl(opened, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        flags |= _INHERIT
    fcntl.ioctl(opened, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags, size, extents, project, other))


def _tag(folder: int, project: int) -> None:
    """Give the project to all in the directory, and last to the directory itself: so it tells that all is done."""
    if project_of(folder) == (project, True):
        return
    for _ in range(2):  # the second round finds what was made in directories before they were tagged
        for entry in TreeWalk(folder):
            if stat.S_ISREG(entry.status.st_mode) or stat.S_ISDIR(entry.status.st_mode):
                with suppress(FileNotFoundError):
                    _tag_entry(entry, project)
    set_project(folder, project)


def _tag_entry(entry: WalkEntry, project: int) -> None:
    found = entry.open_path()
    try:
        kind = os.fstat(found).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # it was exchanged meanwhile
            return
        opened = readable(found, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if project_of(opened)[0] != project:
                set_project(opened, project)
        finally:
            os.close(opened)
    finally:
        os.close(found)


def _kib_of(amount: int | None) -> int:
    """Return bytes as KiB, rounded up; 0, which is no limit, for None."""
    return 0 if amount is None else max(1, -(-amount // _KIB))


def _file_system(opened: int) -> int:
    """Return the magic number of the file system (statfs(2))."""
    buffer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(opened, buffer) != 0:
        raise _last_error()
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF


def _enforces_projects(folder: int) -> bool:
    state = bytearray(_STATE_BYTES)
    state[0] = _STATE_VERSION
    try:
        _quotactl(folder, _GET_STATE, 0, state)
    except OSError:
        return False
    return bool(struct.unpack_from("=H", state, 2)[0] & _PROJECT_ENFORCED)


def _quotactl(folder: int, command: int, number: int, buffer: bytearray) -> None:
    address = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    opened = readable(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syscall(ctypes.c_long(_QUOTACTL_FD), opened, ctypes.c_uint(command), number, address) != 0:
            raise _last_error()
    finally:
        os.close(opened)


def _qgroups(folder: int) -> Path:
    """Return where the kernel shows the qgroups of a btrfs file system while they are on."""
    opened = readable(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = fcntl.ioctl(opened, _FS_INFO, bytes(_FS_INFO_BYTES))
    finally:
        os.close(opened)
    number = found[16:32].hex()
    name = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    return Path("/sys/fs/btrfs", name, "qgroups")


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
