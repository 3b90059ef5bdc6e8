"""Accounts of this machine that are not root but may use the container engine, each with a checkout of its own.

They share one copy of what `make setup` installs, so that a test does not install it again.
"""

import fcntl
import grp
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from tests.platform import ROOT
from tests.ports import free_port

LOCK: Final = Path("/var/tmp/gpuplatform-test-accounts.lock")
ENGINE_SOCKET: Final = Path("/var/run/docker.sock")
COPY: Final = ("cp", "--archive", "--link")  # hard links: the copy costs no room, and no time to speak of
SETUP_STAMP: Final = "stamp-requirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this machine, and their checkout of the project."""

    name: str
    checkout: Path
    environment: dict[str, str]

    def popen(self, *command: str, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a command in the checkout, as this user with the groups that they are in."""
        groups = os.getgrouplist(self.name, pwd.getpwnam(self.name).pw_gid)
        return subprocess.Popen(
            command,
            cwd=self.checkout,
            user=self.name,
            group=groups[0],
            extra_groups=groups,
            start_new_session=True,
            **{"env": self.environment, **options},
        )


@contextmanager
def accounts(*names: str, uids: Sequence[int] = ()) -> Iterator[list[Account]]:
    """Have these users in the group that may use the engine until the block ends; who is left from before goes first.

    Each has this working tree, set up but for its data. `uids` are the ids of the first of them.
    """
    with (
        LOCK.open("w") as lock,
        tempfile.TemporaryDirectory(prefix="gpuplatform-accounts-", dir="/var/tmp") as folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # other checkouts on this machine test with the same users
        shared = Path(folder)
        shared.chmod(0o755)
        for name in names:
            _remove(name)
        try:
            for name, uid in zip_longest(names, uids):
                group = grp.getgrgid(ENGINE_SOCKET.stat().st_gid).gr_name
                number = [] if uid is None else ["--uid", str(uid)]
                _run("useradd", "--create-home", "--shell", "/bin/sh", "--groups", group, *number, name)
            python = _readable_python(shared, names[0])
            _share_setup(shared, python)
            yield [_account(name, shared, python) for name in names]
        finally:
            for name in names:
                _remove(name)


def _remove(name: str) -> None:
    if not _exists(name):
        return
    _kill_processes_of(pwd.getpwnam(name).pw_uid)
    _run("userdel", "--force", "--remove", name)


def _kill_processes_of(uid: int) -> None:
    """Kill what a test has left of the user."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if process.stat().st_uid == uid:
                os.kill(int(process.name), signal.SIGKILL)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _readable_python(shared: Path, name: str) -> Path:
    """Return the folder of a Python like this one that the user can run: a copy where this one is root's alone."""
    base = Path(sys.base_prefix)
    attempt = ["sh", "-c", '"$0" -c ""', str(base / "bin" / "python3")]
    runs = subprocess.run(attempt, user=name, cwd="/", capture_output=True, check=False)
    if runs.returncode == 0:
        return base
    library = Path(sysconfig.get_path("stdlib"))
    parts = [base / "bin", *(base / "lib").glob("libpython*"), *library.iterdir()]
    for part in parts:
        if part.name != "site-packages":
            target = shared / "python" / part.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(part, target)
    return shared / "python"


def _share_setup(shared: Path, python: Path) -> None:
    """Make what `make setup` installs, from what is installed here."""
    _run(str(python / "bin" / "python3"), "-m", "venv", "--without-pip", str(shared / "venv"), **_libraries(python))
    ours = Path(sysconfig.get_path("purelib"))
    theirs = shared / "venv" / ours.relative_to(sys.prefix)
    shutil.rmtree(theirs)
    _copy(ours, theirs)
    (shared / "venv" / SETUP_STAMP).touch()
    _copy(ROOT / "node_modules", shared / "node_modules")


def _account(name: str, shared: Path, python: Path) -> Account:
    home = Path(pwd.getpwnam(name).pw_dir)
    checkout = home / "gpuplatform"
    checkout.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    present = [path for path in listed.stdout.decode().split("\0") if path and (ROOT / path).exists()]
    archive = ["tar", "--create", "--null", "--files-from=-"]
    packed = subprocess.run(archive, cwd=ROOT, input="\0".join(present).encode(), check=True, capture_output=True)
    subprocess.run(["tar", "--extract", "--touch"], cwd=checkout, input=packed.stdout, check=True)
    shutil.copytree(ROOT / "fgpu" / "build", checkout / "fgpu" / "build")
    _run("find", str(checkout / "fgpu" / "build"), "-type", "f", "-exec", "touch", "{}", "+")
    _run("chown", "--recursive", f"{name}:", str(checkout))
    (checkout / ".venv").symlink_to(shared / "venv")
    (checkout / "node_modules").symlink_to(shared / "node_modules")
    for stamp in (shared / "venv" / SETUP_STAMP, *(shared / "node_modules").glob("stamp*")):
        stamp.touch()  # newer than the lists of packages in the checkout
    environment = _inherited() | {
        "HOME": str(home),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "COMPUTE_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_SSH_ADDRESS": f"127.0.0.1:{free_port()}",
        "COMPUTE_HOST_NAME": f"host-of-{name}",
        "COMPUTE_SHARED_ENGINE": "true",
        **_libraries(python),
    }
    return Account(name=name, checkout=checkout, environment=environment)


def _inherited() -> dict[str, str]:
    """Return the variables that are not the platform's: certificates and proxies among them, which are in images."""
    ours = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    return {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("MAKE")}


def _libraries(python: Path) -> dict[str, str]:
    """Return the variable by which a Python that is not where it was built for finds its own library."""
    return {} if python == Path(sys.base_prefix) else {"LD_LIBRARY_PATH": str(python / "lib")}


def _copy(source: Path, target: Path) -> None:
    if subprocess.run([*COPY, source, target], capture_output=True, check=False).returncode:
        shutil.rmtree(target, ignore_errors=True)
        _run("cp", "--archive", str(source), str(target))  # on another file system


def _run(*command: str, **variables: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **variables})
