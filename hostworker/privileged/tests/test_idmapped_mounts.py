"""A storage root whose files belong to a user of the host: in containers they are the container user's, both ways."""

import os
import secrets
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from docker.api import APIClient

from folders.files.layout import RootDirectory
from folders.files.roots import MARKER
from hostworker.privileged import mounts
from hostworker.privileged.storage_roots.idmapped_mounts import AREA, IDS, IdmappedMountError, IdmappedMounts, id_map
from resources import procfs
from tests.containers import ENGINE_URL, IDLE, Container
from tests.execs import output_of
from tests.shell_image import ensure_shell_image

OWNER: Final = (1234, 1235)
FOLDER: Final = (7, "a" * 16)


@contextmanager
def root_at(path: Path) -> Iterator[RootDirectory]:
    """Give a storage root of the platform's user, as one who is that user makes it, to a block."""
    made = RootDirectory(str(path), uuid.uuid4())
    path.mkdir(mode=0o700)
    os.chown(path, *OWNER)
    made.prepare()
    os.chown(path / MARKER, *OWNER)
    made.create(*FOLDER)
    yield made
    IdmappedMounts().release(str(made.key))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RootDirectory]:
    with root_at(tmp_path / "root") as made:
        yield made


@pytest.fixture
def held() -> Iterator[IdmappedMounts]:
    made = IdmappedMounts()
    yield made
    made.release_all()


def hold(held: IdmappedMounts, root: RootDirectory) -> Path:
    return held.hold(Path(root.path), str(root.key))


def mounted(root: RootDirectory) -> int:
    """Return how many mounts there are for the root."""
    return sum(mount.point == str(AREA / str(root.key)) for mount in procfs.mounts(os.getpid()))


def owner_of(path: Path) -> tuple[int, int]:
    return path.lstat().st_uid, path.lstat().st_gid


@contextmanager
def container(source: Path) -> Iterator[Container]:
    """Give a container that has the directory at /data to a block."""
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        config = client.create_host_config(init=True, network_mode="none", binds=[f"{source}:/data"])
        name = f"gptest-{secrets.token_hex(6)}"
        made = client.create_container(ensure_shell_image(), IDLE, name=name, host_config=config, user="0")["Id"]
        try:
            client.start(made)
            yield Container(made, client)
        finally:
            client.remove_container(made, force=True)


def as_work(container: Container, command: str) -> str:
    """Return the output of a shell command of the container's user."""
    return output_of(container.client, container.id, command, "1000:1000")[1].strip()


@pytest.mark.docker
def test_files_have_two_owners_inside_and_outside(held: IdmappedMounts, root: RootDirectory) -> None:
    files = Path(root.files_path(*FOLDER))
    with root.open(*FOLDER) as opened:
        opened.write_text("of-pages", "from pages", if_match=None)
    source = hold(held, root) / files.relative_to(root.path)
    with container(source) as made:
        assert as_work(made, "umask 077; cat /data/of-pages; echo private > /data/private") == "from pages"
        made.run("echo root > /data/of-root")
        as_work(made, "mv /data/of-pages /data/moved")
        lines = [line.split() for line in as_work(made, "ls -ln /data").splitlines()[1:]]
        assert {line[-1]: (line[0], *line[2:4]) for line in lines} == {
            "moved": ("-rw-r--r--", "1000", "1000"),
            "of-root": ("-rw-r--r--", "0", "0"),
            "private": ("-rw-------", "1000", "1000"),
        }
        assert [owner_of(files / name) for name in ("moved", "of-root", "private")] == [OWNER, (0, 0), OWNER]
        pid = int(made.client.inspect_container(made.id)["State"]["Pid"])
        assert mounts.set_read_only(pid, files, read_only=True)
        assert "Read-only" in as_work(made, "echo x > /data/x")
        assert mounts.set_read_only(pid, files, read_only=False)
        held.release_all()
        assert (mounted(root), as_work(made, "echo x > /data/x; cat /data/x")) == (0, "x")
        mounts.take_away(pid, files)
        assert as_work(made, "ls /data") == ""


def test_a_root_is_mounted_once_until_nobody_needs_it(held: IdmappedMounts, root: RootDirectory) -> None:
    other = IdmappedMounts()
    for each in (held, held, other, other):
        assert owner_of(hold(each, root) / "7") == (1000, 1000)
        assert mounted(root) == 1
    held.release(str(root.key))
    assert mounted(root) == 1
    other.release_all()
    assert (mounted(root), list(AREA.glob(f"{root.key}*"))) == (0, [])


def test_a_root_that_was_exchanged_is_mounted_anew(held: IdmappedMounts, root: RootDirectory) -> None:
    (hold(held, root) / "old").touch()
    path = Path(root.path)
    path.rename(path.with_name("away"))
    subprocess.run(["cp", "--archive", path.with_name("away"), path], check=True)
    (path / "old").rename(path / "new")
    assert (hold(held, root) / "new").exists()
    os.chown(path / MARKER, 4321, 4321)
    os.chown(path / "7", 4321, 4321)
    assert owner_of(hold(held, root) / "7") == (1000, 1000)
    assert mounted(root) == 1


def test_a_dead_process_leaves_what_is_used_and_removed(held: IdmappedMounts, root: RootDirectory) -> None:
    script = "import sys; from pathlib import Path; from hostworker.privileged.storage_roots.idmapped_mounts import *; "
    script += "IdmappedMounts().hold(Path(sys.argv[1]), sys.argv[2])"
    subprocess.run([sys.executable, "-c", script, root.path, str(root.key)], check=True)
    assert mounted(root) == 1
    hold(held, root)
    assert mounted(root) == 1
    held.release_all()
    assert mounted(root) == 0


def test_only_root_gets_to_the_mounts(held: IdmappedMounts, root: RootDirectory) -> None:
    hold(held, root)
    assert (AREA.stat().st_mode & 0o777, AREA.stat().st_uid) == (0o700, 0)


def test_another_root_is_refused(held: IdmappedMounts, root: RootDirectory) -> None:
    with pytest.raises(IdmappedMountError, match="is not the storage root"):
        held.hold(Path(root.path), str(uuid.uuid4()))


def test_a_file_system_that_cannot_says_so(held: IdmappedMounts, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "ramfs", tmp_path], check=True)
    try:
        with root_at(tmp_path / "root") as root:
            with pytest.raises(IdmappedMountError, match=r"belong to user id 1234, .* has no id-mapped mounts\.$"):
                hold(held, root)
            assert mounted(root) == 0
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("ids", [(1234, 1000), (1000, 1234), (1001, 1000), (0, 1000), (999, 1000), (IDS - 1, 1000)])
def test_a_map_exchanges_two_ids_and_keeps_all_others(ids: tuple[int, int]) -> None:
    ranges = [tuple(map(int, line.split())) for line in id_map(*ids).splitlines()]

    def outside(number: int) -> list[int]:
        return [other + number - first for first, other, length in ranges if first <= number < first + length]

    assert (outside(ids[0]), outside(ids[1])) == ([ids[1]], [ids[0]])
    for number in {0, 1, 998, 1002, 1233, 1235, 65534, IDS - 2} - set(ids):
        assert outside(number) == [number]
    assert sum(length for _, _, length in ranges) == IDS


def test_a_map_of_the_same_id_keeps_all() -> None:
    assert id_map(1000, 1000) == f"0 0 {IDS}"
