"""The image of a sandbox: one static program that waits for ever. Made on the host, so no registry is asked."""

import io
import platform
import tarfile
from typing import Final

from fgpu.mounts import BUILD

REPOSITORY: Final = "gpuplatform/sandbox"
TAG: Final = "2"  # raise it when the content changes
IMAGE: Final = f"{REPOSITORY}:{TAG}"
PROGRAM: Final = "/pause"
EXECUTABLE: Final = BUILD / "sandbox" / f"pause-{platform.machine()}"  # fgpu/sandbox/pause.c, built by `make fgpu`


def is_possible() -> bool:
    """Return whether the program is built for this machine."""
    return EXECUTABLE.is_file()


def layer() -> bytes:
    """Return a tar of the image's only file."""
    content, buffer = EXECUTABLE.read_bytes(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(PROGRAM.lstrip("/"))
        entry.mode, entry.size = 0o555, len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
