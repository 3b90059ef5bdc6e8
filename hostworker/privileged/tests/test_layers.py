"""The files of a container's writable layer are counted, by a walk with an end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from folders.files import kernel_quota, walk
from folders.files.kernel_quota import KernelQuota
from hostworker.privileged.layers import bound_files, upper_folder
from resources import procfs
from resources.procfs import mount_entry

PID = 7
OVERLAY = "/ / rw,relatime master:1 - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir={upper},workdir=/w"


@pytest.fixture
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layer of a container whose main process has the id PID, with 30 files and 3 directories in it."""
    folder = tmp_path / "layer"
    for number in range(30):
        path = folder / f"d{number % 3}" / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    process = tmp_path / "proc" / str(PID)
    process.mkdir(parents=True)
    (process / "mountinfo").write_text(
        f"9 8 0:51 {OVERLAY.format(upper=folder)}\n10 9 0:52 / /proc rw - proc proc rw\n"
    )
    monkeypatch.setattr(procfs, "PROC", tmp_path / "proc")
    return folder


@pytest.mark.parametrize(
    ("mountinfo", "upper"),
    [
        (f"9 8 0:51 {OVERLAY.format(upper='/var/lib/docker/overlay2/7/diff')}", "/var/lib/docker/overlay2/7/diff"),
        (f"9 8 0:51 {OVERLAY.format(upper=chr(92) + '040x/diff')}", None),  # not absolute
        (f"9 8 0:51 {OVERLAY.format(upper='/a' + chr(92) + '040b')}", "/a b"),
        ("9 8 254:0 / / rw,relatime - ext4 /dev/vda rw", None),
        (f"9 8 0:51 / /data rw - {OVERLAY.partition(' - ')[2].format(upper='/x')}", None),
    ],
)
def test_the_folder_is_the_upper_one_of_the_root(mountinfo: str, upper: str | None) -> None:
    assert upper_folder(filter(None, [mount_entry(mountinfo)])) == (Path(upper) if upper else None)


@pytest.mark.usefixtures("layer")
@pytest.mark.parametrize(("limit", "count"), [(None, 33), (100, 33), (33, 33), (20, 21), (1, 2)])
def test_a_walk_ends_just_beyond_the_limit(limit: int | None, count: int) -> None:
    assert bound_files(PID, limit) == count


def test_many_names_of_one_file_do_not_delay_a_walk(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (layer / "file").touch()
    for number in range(1000):
        (layer / f"link-{number}").hardlink_to(layer / "file")
    visited = []
    entries = walk.TreeWalk.__iter__

    def counted(tree: walk.TreeWalk) -> Iterator[walk.WalkEntry]:
        for entry in entries(tree):
            visited.append(entry.name)
            yield entry

    monkeypatch.setattr(walk.TreeWalk, "__iter__", counted)
    assert bound_files(PID, None) == 34, "a file with several names is one"
    visited.clear()
    bound_files(PID, 49)
    assert len(visited) <= 50 * walk.LINKS_WALKED + 1


@pytest.mark.usefixtures("layer")
def test_a_container_that_has_ended_has_no_count() -> None:
    assert bound_files(PID + 1, None) is None


def test_a_layers_quota_of_files_is_set_once(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for XFS with project quotas, which has one limit for each project."""
    held, asked = {"most": 0}, []

    def quotactl(folder: int, command: int, number: int, buffer: bytearray) -> None:
        asked.append((command, number))
        if command == kernel_quota._GET_QUOTA:
            buffer[:] = kernel_quota._LIMITS.pack(50, 0, 0, held["most"], 0, 4711, 0, 0, 5)
        else:
            _, _, _, held["most"], *_, valid = kernel_quota._LIMITS.unpack(buffer)
            assert valid == 4, "the limit of bytes is the engine's"

    monkeypatch.setattr(kernel_quota, "support_of", lambda folder: KernelQuota.PROJECT)
    monkeypatch.setattr(kernel_quota, "project_of", lambda folder: (12, True))
    monkeypatch.setattr(kernel_quota, "_quotactl", quotactl)
    for most in (5000, 5000, None):
        assert bound_files(PID, most) == 33, "counted whatever the project has: files may be given to another"
        assert held["most"] == (most or 0)
    assert [command for command, _ in asked].count(kernel_quota._SET_QUOTA) == 2
    assert {number for _, number in asked} == {12}
    monkeypatch.setattr(kernel_quota, "project_of", lambda folder: (0, False))
    assert not kernel_quota.limit_files(0, 10)
    assert layer.is_dir()
