"""Fetch wheels with this host's pip, for builds that cannot find them on a package index of their own."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from resources.images.base import Report
from resources.images.catalogue.recipes import PYTHONS, Recipe

FETCH_SECONDS: Final = 1800
TAIL_LINES: Final = 5
_GLIBC_MINORS: Final = range(36, 16, -1)  # bookworm has glibc 2.36, and wheels are made for 2.17 and later


class WheelError(Exception):
    """A wheel could not be fetched; the message has the end of pip's output and what to do."""


@contextmanager
def fetched(recipe: Recipe, machine: str, environ: Mapping[str, str], report: Report) -> Iterator[tuple[Path, ...]]:
    """Yield the files of the recipe's wheels for an architecture such as x86_64; they exist for the block.

    pip asks the places that its own configuration names (pip.conf, PIP_FIND_LINKS, PIP_INDEX_URL,
    PIP_EXTRA_INDEX_URL), and the recipe's index only where none of them has the wheels. Raise WheelError.
    """
    if not recipe.wheels:
        yield ()
        return
    with TemporaryDirectory(prefix="gpuplatform-wheels-", dir="/var/tmp") as folder:
        report(f"fetching {', '.join(recipe.wheels)}")
        problem = _download(_command(recipe, machine, folder), environ)
        if problem and recipe.wheel_index:
            report(f"fetching {', '.join(recipe.wheels)} from {recipe.wheel_index}")
            problem = _download([*_command(recipe, machine, folder), "--extra-index-url", recipe.wheel_index], environ)
        if problem:
            raise WheelError(
                f"{problem}\n{', '.join(recipe.wheels)} could not be fetched. Name a folder or page that has the wheel "
                "in PIP_FIND_LINKS, or a package index in PIP_EXTRA_INDEX_URL, and build the image again."
            )
        yield tuple(sorted(Path(folder).glob("*.whl")))


def _command(recipe: Recipe, machine: str, folder: str) -> list[str]:
    tags = (*(f"manylinux_2_{minor}" for minor in _GLIBC_MINORS), "manylinux2014", "linux")
    platforms = [word for tag in tags for word in ("--platform", f"{tag}_{machine}")]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:"),
        *("--python-version", PYTHONS[recipe.suite], *platforms, "--dest", folder, *recipe.wheels),
    ]


def _download(command: list[str], environ: Mapping[str, str]) -> str:
    """Run pip; return the end of its output if it failed, else ""."""
    environment = {**environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip download took more than {FETCH_SECONDS} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-TAIL_LINES:] or ["pip download failed"]) if done.returncode else ""
