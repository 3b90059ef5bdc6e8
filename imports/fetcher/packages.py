"""Packages that a tree names, installed into a virtual environment beside it, once for each state of its files.

What the image has is seen in it and not installed again, so a framework with its CUDA libraries costs nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from imports.fetcher.job import FetchError, FetchJob

VENV: Final = ".venv"
LOCK: Final = ".venv.lock"
STAMP: Final = "gpuplatform-stamp"
MAX_LINE: Final = 300
OF_PYTHON: Final = "import sysconfig, sys; print(sysconfig.get_path('purelib')); print(sys.version)"


UV: Final = "uv>=0.5,<1"  # where the image has none


class InstallPlan(NamedTuple):
    """Which files say what is installed, and what pip is asked for; with a lock file, the tool that reads it."""

    files: tuple[str, ...]
    arguments: tuple[str, ...]
    is_locked: bool = False


PLANS: Final = (
    InstallPlan(("uv.lock", "pyproject.toml"), (UV,), is_locked=True),
    InstallPlan(("requirements.txt",), ("-r", "requirements.txt")),
    InstallPlan(("pyproject.toml",), ("-e", ".")),
)


def install(tree: Path, job: FetchJob) -> None:
    """Install what the tree names, unless that was done for the same files, Python and image; raises FetchError."""
    plan = next((plan for plan in PLANS if all((tree / name).is_file() for name in plan.files)), None)
    if plan is None:
        if (tree / "environment.yml").is_file():
            job.note("environment.yml is conda's, which is not installed by itself.")
        return
    venv = tree / VENV
    with _locked(tree, job):
        stamp = _stamp(tree, plan, job)
        if not _fits(venv, stamp):
            _install(tree, plan, job)
            (venv / STAMP).write_text(stamp)
    _offer_kernel(tree, venv)


@contextmanager
def _locked(tree: Path, job: FetchJob) -> Iterator[None]:
    """Keep other sessions that have the tree from installing meanwhile; the lock ends with this process."""
    _exclude_lock(tree)
    lock = os.open(tree / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            job.show("Waits for another session that installs packages")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _exclude_lock(tree: Path) -> None:
    """Have git not show the lock's file, where the tree is a repository."""
    excluded = tree / ".git" / "info" / "exclude"
    if (tree / ".git").is_dir() and not (excluded.is_file() and LOCK in excluded.read_text().splitlines()):
        excluded.parent.mkdir(exist_ok=True)
        with excluded.open("a") as file:
            file.write(f"{LOCK}\n")


def _stamp(tree: Path, plan: InstallPlan, job: FetchJob) -> str:
    digest = hashlib.sha256(f"{sys.version}\0{job.image}\0{' '.join(plan.arguments)}\0".encode())
    for name in plan.files:
        digest.update((tree / name).read_bytes() + b"\0")
    return digest.hexdigest()


def _fits(venv: Path, stamp: str) -> bool:
    try:
        return (venv / STAMP).read_text() == stamp
    except OSError:
        return False


def _install(tree: Path, plan: InstallPlan, job: FetchJob) -> None:
    venv = tree / VENV
    (venv / STAMP).unlink(missing_ok=True)  # so that half an installation is none
    job.show("Installs packages")
    if not _is_for_this_python(venv):
        _run([sys.executable, "-m", "venv", "--clear", "--system-site-packages", VENV], tree, job)
    own = _python(venv / "bin" / "python")[0]
    (Path(own) / "_image.pth").write_text(f"{_python(Path(sys.executable))[0]}\n")
    pip = [f"{VENV}/bin/python", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    uv = shutil.which("uv") if plan.is_locked else None
    if not uv:
        _run([*pip, "--progress-bar=off", *plan.arguments], tree, job)
    if plan.is_locked:
        _run([uv or f"{VENV}/bin/uv", "sync", "--frozen", "--inexact"], tree, job)


def _is_for_this_python(venv: Path) -> bool:
    """Return whether its Python has packages of its own; an image's other version looks for them elsewhere."""
    try:
        own = Path(_python(venv / "bin" / "python")[0])
    except (OSError, subprocess.CalledProcessError):
        return False
    return own.is_dir() and own.resolve().is_relative_to(venv.resolve())


def _python(program: Path) -> list[str]:
    return subprocess.check_output([program, "-c", OF_PYTHON], text=True).splitlines()


def _run(command: list[str], tree: Path, job: FetchJob) -> None:
    """Run a command, showing its last line. Raises FetchError with it where the command fails.

    What ends this program ends the command first, with all that it has started.
    """
    environment = {**os.environ, "PIP_USER": "0", "VIRTUAL_ENV": str(tree / VENV)}
    last = ""
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip():
                    last = "".join(filter(str.isprintable, line.strip()))[:MAX_LINE]
                    job.show(last, 0)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise FetchError(f"The packages could not be installed: {last}")


def _offer_kernel(tree: Path, venv: Path) -> None:
    """Have Jupyter offer the environment, with the kernel that the image has."""
    kernels = Path.home() / ".local" / "share" / "jupyter" / "kernels" / f"import-{tree.name.lower()}"
    kernels.mkdir(parents=True, exist_ok=True)
    command = [str(venv / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": command, "display_name": f"Python ({tree.name})", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(about))
