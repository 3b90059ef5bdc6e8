"""Packages that a tree names, installed once for each state of what names them.

What the image has is seen in the environment and not installed again, so a framework with its CUDA libraries costs
nothing. uv installs where the image has it, else pip.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from imports.fetcher import conda, environments
from imports.fetcher.job import FetchError, FetchJob

MAX_LINE: Final = 300
MAX_LINES: Final = 5000  # of a command's output that are looked at
MAX_INCLUDED: Final = 50  # files that requirements name in turn
UV: Final = "uv>=0.10,<1"  # where the image has none and there is a lock file
FROM_CONDA: Final = ".from-environment-yml.txt"
OF_PYTHON: Final = "import sysconfig, sys; print(sysconfig.get_path('purelib')); print(sys.version)"
_CHANGED: Final = re.compile(r" [+~] ([A-Za-z0-9._-]+)", re.ASCII)  # uv: what it would install
_INCLUDED: Final = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)[ =]?\s*(\S+)")


class InstallError(FetchError):
    """A tool could not install; the message is the last that it said."""


class InstallPlan(NamedTuple):
    """Which files say what is installed, and what uv or pip is asked for; or that uv syncs to a lock file."""

    files: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    is_locked: bool = False
    requirements: tuple[str, ...] = ()  # lines of a file that is written beside, and asked for


def install(tree: Path, job: FetchJob) -> None:
    """Install what the tree names, unless that was done for the same files, Python and image; raises FetchError."""
    plan = _plan(tree, job)
    if plan is None:
        return
    stamp = _stamp(tree, plan, job)
    place = environments.place_of(tree, stamp)
    with environments.locked(tree, place, job):
        if not environments.is_whole(place.venv, stamp):
            _install(place, tree, plan, job)
            environments.finish(place.venv, stamp)
            if environments.trim(place) and (uv := shutil.which("uv")):
                with suppress(InstallError):  # the packages are there all the same
                    _run([uv, "cache", "clean"], tree, place, job)
        environments.use(place, tree)
    _offer_kernel(tree, place.venv)


def _plan(tree: Path, job: FetchJob) -> InstallPlan | None:
    """Return what is installed, None for nothing: a lock file says most, then what names versions."""
    there = [
        name for name in ("uv.lock", "requirements.txt", "environment.yml", "pyproject.toml") if _is_own(tree, name)
    ]
    if {"uv.lock", "pyproject.toml"} <= set(there):
        return InstallPlan(("uv.lock", "pyproject.toml"), is_locked=True)
    if "requirements.txt" in there:
        return InstallPlan(_with_included(tree, "requirements.txt"), ("-r", "requirements.txt"))
    if "environment.yml" in there:
        wanted = conda.translate((tree / "environment.yml").read_text(errors="replace"))
        if wanted.note:
            job.note(wanted.note)
        return InstallPlan(("environment.yml",), requirements=wanted.requirements) if wanted.requirements else None
    if "pyproject.toml" in there:
        return _of_project((tree / "pyproject.toml").read_text(errors="replace"))
    return None


def _of_project(text: str) -> InstallPlan | None:
    """Return how a project is installed: itself where it says how it is built, else what it depends on."""
    tables = set(re.findall(r"(?m)^\[([\w-]+)\]", text))
    arguments = ["-e", "."] if "build-system" in tables else ["-r", "pyproject.toml"] if "project" in tables else []
    if "dependency-groups" in tables and re.search(r"(?m)^dev\s*=", text):
        arguments += ["--group", "dev"]
    return InstallPlan(("pyproject.toml",), tuple(arguments)) if arguments else None


def _is_own(tree: Path, name: str) -> bool:
    path = tree / name
    return path.is_file() and not path.is_symlink()


def _with_included(tree: Path, name: str) -> tuple[str, ...]:
    """Return a requirements file and those that it includes, by their paths in the tree."""
    found, left = [name], [name]
    while left and len(found) <= MAX_INCLUDED:
        current = left.pop()
        for line in (tree / current).read_text(errors="replace").splitlines():
            if included := _INCLUDED.match(line):
                path = os.path.normpath(os.path.join(os.path.dirname(current), included[1]))
                if path not in found and not path.startswith((os.pardir, "/")) and _is_own(tree, path):
                    found.append(path)
                    left.append(path)
    return tuple(found)


def _stamp(tree: Path, plan: InstallPlan, job: FetchJob) -> str:
    """Return what the environment depends on: where the tree is, too, since projects are installed as links to it."""
    digest = hashlib.sha256(f"{tree}\0{sys.version}\0{job.image}\0{' '.join(plan.arguments)}\0".encode())
    for name in plan.files:
        digest.update((tree / name).read_bytes() + b"\0")
    return digest.hexdigest()


def _install(place: environments.Place, tree: Path, plan: InstallPlan, job: FetchJob) -> None:
    venv = place.venv
    (venv / environments.STAMP).unlink(missing_ok=True)  # so that half an installation is none
    job.show("Installs packages")
    if not _is_for_this_python(venv):
        options = ["--without-pip"] if importlib.util.find_spec("pip") else []  # that of the image is seen there
        made = [sys.executable, "-I", "-m", "venv", "--clear", "--system-site-packages", *options, str(venv)]
        _run(made, tree, place, job)
    own = _python(venv / "bin" / "python")[0]
    (Path(own) / "_image.pth").write_text(f"{_python(Path(sys.executable))[0]}\n")
    python, uv = str(venv / "bin" / "python"), shutil.which("uv")
    pip = [python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    if plan.is_locked:
        if not uv:
            _run([*pip, UV], tree, place, job)
        _run([uv or str(venv / "bin" / "uv"), "sync", "--frozen", "--inexact"], tree, place, job)
        return
    with _asked(tree, plan) as arguments:
        if not (uv and _is_installed_by_uv(uv, python, arguments, tree, place, job)):
            _run([*pip, *arguments], tree, place, job)


@contextmanager
def _asked(tree: Path, plan: InstallPlan) -> Iterator[tuple[str, ...]]:
    """Yield what uv or pip is asked for, with lines of requirements in a file of the tree, whence paths are."""
    if not plan.requirements:
        yield plan.arguments
        return
    file = tree / FROM_CONDA
    file.unlink(missing_ok=True)
    try:
        file.write_text("".join(f"{line}\n" for line in plan.requirements))
        yield ("-r", FROM_CONDA)
    finally:
        file.unlink(missing_ok=True)


def _is_installed_by_uv(
    uv: str, python: str, arguments: tuple[str, ...], tree: Path, place: environments.Place, job: FetchJob
) -> bool:
    """Install by uv what the image lacks, and return whether that went well: pip takes some files that uv does not.

    uv sees in an environment what was installed there alone. So it says what it would change in the image's own
    Python, and what the image has and would keep is then left out.
    """
    install = [uv, "pip", "install"]
    try:
        lines = _run([*install, "--dry-run", "--python", sys.executable, *arguments], tree, place, job)
        changed = {_plain(found[1]) for line in lines if (found := _CHANGED.match(line))}
        if changed or any(line.startswith("Would install") for line in lines):
            names = {_plain(each.metadata["Name"] or "") for each in importlib.metadata.distributions()}
            excluded = place.venv / "of-the-image.txt"
            excluded.write_text("".join(f"{name}\n" for name in sorted(names - changed - {""})))
            _run([*install, "--python", python, "--excludes", str(excluded), *arguments], tree, place, job)
    except InstallError:
        return False
    return True


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_for_this_python(venv: Path) -> bool:
    """Return whether its Python has packages of its own; an image's other version looks for them elsewhere."""
    try:
        own = Path(_python(venv / "bin" / "python")[0])
    except (OSError, subprocess.CalledProcessError):
        return False
    return own.is_dir() and own.resolve().is_relative_to(venv.resolve())


def _python(program: Path) -> list[str]:
    return subprocess.check_output([program, "-c", OF_PYTHON], text=True).splitlines()


def _run(command: list[str], tree: Path, place: environments.Place, job: FetchJob) -> list[str]:
    """Run a command, showing its last line, and return its lines. Raises InstallError where it fails.

    What ends this program ends the command first, with all that it has started.
    """
    lines = deque[str](maxlen=MAX_LINES)
    last = ""
    with subprocess.Popen(
        command,
        cwd=tree,
        env=_variables(place),
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
                lines.append(line[:MAX_LINE])
                if line.strip():
                    last = "".join(filter(str.isprintable, line.strip()))[:MAX_LINE]
                    job.show(last, 0)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise InstallError(f"The packages could not be installed: {last}")
    return list(lines)


def _variables(place: environments.Place) -> dict[str, str]:
    """Return the variables of the tools: one place for all that is installed, and pip's indexes for uv as well."""
    own = {
        "PIP_USER": "0",
        "VIRTUAL_ENV": str(place.venv),
        "UV_PROJECT_ENVIRONMENT": str(place.venv),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if place.folder is not None:
        own["UV_CACHE_DIR"] = str(place.folder / environments.DOWNLOADS)
    of_pip = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX", "PIP_FIND_LINKS": "UV_FIND_LINKS"}
    indexes = {name: os.environ[given] for given, name in of_pip.items() if os.environ.get(given)}
    return {**indexes, **os.environ, **own}


def _offer_kernel(tree: Path, venv: Path) -> None:
    """Have Jupyter offer the environment, with the kernel that the image has."""
    kernels = Path.home() / ".local" / "share" / "jupyter" / "kernels" / f"import-{tree.name.lower()}"
    kernels.mkdir(parents=True, exist_ok=True)
    command = [str(venv / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": command, "display_name": f"Python ({tree.name})", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(about))
