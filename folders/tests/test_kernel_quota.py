"""Quotas that file systems enforce, on file systems made for the test. This kernel must know them."""

import errno
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from folders.files import kernel_quota
from folders.files.errors import StorageFullError
from folders.files.kernel_quota import KernelQuota, limit, project_number, project_of, set_project, support_of
from folders.files.layout import RootDirectory
from operations.machine.system_packages import program

MIB = 2**20


@contextmanager
def file_system(folder: Path, kind: str, *options: str) -> Iterator[Path]:
    """Mount a new file system of this kind, in a sparse file of 512 MiB."""
    image, point = folder / "image", folder / "mounted"
    with image.open("wb") as file:
        file.truncate(512 * MIB)
    point.mkdir()
    subprocess.run([program(f"mkfs.{kind}") or kind, "-q", *options, image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Give a descriptor of the file or directory to a block."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_file_system_without_quotas_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        assert support_of(folder) == KernelQuota.NONE
    (tmp_path / "7").mkdir()
    assert limit(tmp_path, 7, 9, MIB, None) == KernelQuota.NONE
    assert limit(tmp_path, 8, 9, MIB, None) == KernelQuota.NONE


def test_project_numbers_are_unique_and_bounded() -> None:
    assert len({project_number(root, owner) for root in (1, 2, 511) for owner in (1, 2, 2**21 - 1)}) == 9
    assert project_number(511, 2**21 - 1) < 2**31
    for root, owner in ((512, 1), (1, 2**21)):
        with pytest.raises(OSError, match=os.strerror(errno.EOVERFLOW)):
            project_number(root, owner)


@pytest.mark.long
def test_everything_in_a_directory_gets_its_project(tmp_path: Path) -> None:
    with file_system(tmp_path, "xfs") as point:
        (point / "7" / "sub").mkdir(parents=True)
        (point / "7" / "sub" / "file").touch()
        (point / "7" / "link").symlink_to("/etc/hostname")
        os.mkfifo(point / "7" / "pipe")
        with opened(point / "7") as folder:
            kernel_quota._tag(folder, 77)
            kernel_quota._tag(folder, 77)
        (point / "7" / "sub" / "later").touch()
        for path in ("7", "7/sub"):
            with opened(point / path) as found:
                assert project_of(found) == (77, True)
        for path in ("7/sub/file", "7/sub/later"):
            with opened(point / path) as found:
                assert project_of(found)[0] == 77
        with opened(point) as found:
            assert project_of(found) == (0, False)
            set_project(found, 5)
            assert project_of(found) == (5, True)


@pytest.mark.long
def test_btrfs_refuses_what_exceeds_the_quota_of_an_owner(tmp_path: Path) -> None:
    with file_system(tmp_path, "btrfs") as point:
        with opened(point) as folder:
            assert support_of(folder) == KernelQuota.NONE
            subprocess.run(["btrfs", "quota", "enable", point], check=True)
            assert support_of(folder) == KernelQuota.BTRFS
        root = RootDirectory(str(point / "root"), uuid.uuid4())
        root.prepare()
        root.create(7, "a" * 16)
        root.create(8, "b" * 16)
        assert limit(Path(root.path), 7, 9, 20 * MIB, 5) == KernelQuota.BTRFS
        as_user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"] if os.geteuid() == 0 else []
        assert write_as(as_user, root.files_path(8, "b" * 16)) == ""
        assert "Disk quota exceeded" in write_as(as_user, root.files_path(7, "a" * 16))
        with root.open(7, "a" * 16) as files, pytest.raises(StorageFullError):
            files.write_text("more", "x" * 2**20, if_match=None)
        (Path(root.files_path(7, "a" * 16)) / "big").unlink()
        assert limit(Path(root.path), 7, 9, None, None) == KernelQuota.BTRFS
        assert write_as(as_user, root.files_path(7, "a" * 16)) == ""
        root.expunge(7, "a" * 16)
        assert root.purge(1000)
        (point / "root" / "9").mkdir()
        assert limit(Path(root.path), 9, 9, MIB, None) == KernelQuota.NONE


def write_as(as_user: list[str], folder: str) -> str:
    """Write 40 MiB as a session's user does, and return what was said against it."""
    command = [*as_user, "dd", "if=/dev/zero", "of=big", "bs=1M", "count=40", "conv=fsync", "status=none"]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder).stderr


@pytest.mark.long
def test_a_subvolume_that_a_session_made_is_removed(tmp_path: Path) -> None:
    with file_system(tmp_path, "btrfs") as point:
        root = RootDirectory(str(point / "root"), uuid.uuid4())
        root.prepare()
        root.create(7, "a" * 16)
        files = Path(root.files_path(7, "a" * 16))
        for subvolume in ("sub", "sub/below"):
            subprocess.run(["btrfs", "subvolume", "create", files / subvolume], check=True, capture_output=True)
            (files / subvolume / "d" / "e").mkdir(parents=True)
            (files / subvolume / "d" / "e" / "file").write_text("x")
        root.expunge(7, "a" * 16)
        assert root.purge(1000)
        assert os.listdir(point / "root" / "7" / ".expunged") == []
