"""Containers on the simulated host, of images made from files of this machine, for tests."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fgpu.mounts import BUILD, BindMount, hook_mounts, simulated_mounts
from fgpu.tests.host import Session

TOOLS = ["sh", "cat", "rm", "mv", "cp", "env", "sleep", "umount", "sed"]
LABEL = "gpuplatform.fgpu-test"


def docker(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], input=text, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class ImageFile:
    """A file of an image, by its path there."""

    path: str
    source: Path
    mode: int = 0o755
    headers: dict[str, str] = field(default_factory=dict)  # of its entry in the archive: extended attributes


def libraries_of(program: str) -> list[Path]:
    """Everything the loader needs for a program or library."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"(/lib[^\s:]+)", listing)]


def tools() -> list[ImageFile]:
    """A few programs of this machine, and what they and the hook need."""
    programs = [shutil.which(tool) or tool for tool in TOOLS]
    files = {path for program in [*programs, str(BUILD / "libfgpu.so")] for path in libraries_of(program)}
    return [ImageFile(str(path), path) for path in sorted(files.union(map(Path, programs)))]


@contextmanager
def import_image(files: Iterable[ImageFile]) -> Iterator[str]:
    """An image of these files alone, removed at the end."""
    name = f"gpuplatform-fgpu-test:{uuid.uuid4().hex[:8]}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            content = file.source.read_bytes()
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.pax_headers = len(content), file.mode, file.headers
            tar.addfile(entry, io.BytesIO(content))
    imported = subprocess.run(
        ["docker", "import", "-", name], input=archive.getvalue(), capture_output=True, check=False
    )
    assert imported.returncode == 0, imported.stderr
    try:
        yield name
    finally:
        docker("rmi", "-f", name)


def volume(mount: BindMount) -> str:
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


class Container:
    """A session's container on the simulated host, mounted as the platform does it."""

    def __init__(
        self, image: str, session: Session, leave_out: str = "", command: Sequence[str] = ("sleep", "600")
    ) -> None:
        folder = session.host.folder
        mounts = [
            *hook_mounts(session.limits, session.region),
            *simulated_mounts(folder / "gpus.conf", folder / "state"),
            BindMount(BUILD / "test" / "probe", "/usr/bin/probe"),
            BindMount(BUILD / "test" / "static", "/usr/bin/static"),
        ]
        (folder / "state").touch()
        (folder / "state").chmod(0o666)  # for whatever user
        bound = [mount for mount in mounts if mount.target != leave_out]
        volumes = [word for mount in bound for word in ("-v", volume(mount))]
        options = ["-d", "--init", "--label", LABEL, "--network", "none", *volumes]
        started = docker("run", *options, image, *command)
        assert started.returncode == 0, started.stderr
        self.id = started.stdout.strip()

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return docker("exec", "-i", self.id, *command, text=text)

    def ask(self, *lines: str) -> list[str]:
        return self.run("probe", text="".join(line + "\n" for line in lines)).stdout.splitlines()
