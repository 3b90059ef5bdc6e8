"""The hook and the simulated driver as sessions see them: copies that a new build does not disturb."""

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOOK: Final = "libfgpu.so"
NVML: Final = "sim/libnvidia-ml.so.1"
ARBITER: Final = f"arbiter-{platform.machine()}"
PARTS: Final = ("ld.so.preload", "sim/libcuda.so.1", NVML, "sim/nvidia-smi", HOOK)  # the hook is copied last


class ProgramsMissingError(Exception):
    """What `make fgpu` builds is missing; the message says so."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder that `make fgpu` fills, and the one in which copies for sessions are kept."""

    build: Path
    store: Path

    def missing(self) -> str:
        """Return what is wrong where something is not built, as a sentence; "" where all is."""
        lacking = (path for name in PARTS if not (path := self.build / name).is_file())
        return next((f"{path} is missing; `make fgpu` builds it." for path in lacking), "")

    def installed(self) -> Path:
        """Return a folder like the build's with copies of what is built now, made if need be.

        Raises ProgramsMissingError, OSError.

        Running sessions keep the copies they began with: overwriting a library under its processes would crash them.
        """
        try:
            contents = {name: (self.build / name).read_bytes() for name in PARTS}
        except FileNotFoundError:
            raise ProgramsMissingError(self.missing()) from None
        folder = self.store / hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
        if not (folder / HOOK).exists():
            for name, content in contents.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(folder / name, content, 0o755)
        return folder

    def installed_arbiter(self) -> tuple[Path, str]:
        """Return a copy of the arbiter as it is built now, and what tells it from other builds.

        Raises ProgramsMissingError, OSError.
        """
        built = self.build / ARBITER
        try:
            content = built.read_bytes()
        except FileNotFoundError:
            raise ProgramsMissingError(f"{built} is missing; `make fgpu` builds it.") from None
        name = hashlib.sha256(content).hexdigest()[:16]
        copy = self.store / "arbiters" / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy, content, 0o755)
        return copy, name

    def hook_inodes(self) -> frozenset[int]:
        """Return the inodes of our copies of the hook, by which a process is known to have one of them mapped.

        Their device does not count: some file systems show another one in /proc/<pid>/maps than to stat.
        """
        return frozenset(path.stat().st_ino for path in self.store.glob(f"*/{HOOK}"))


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Put a file in its place at once, so that nobody sees a part of it, whoever dies."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(path)
