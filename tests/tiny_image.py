"""A 2 MB image for tests with real containers, made from Debian's static busybox: no registry is asked."""

import io
import tarfile
import tempfile
from pathlib import Path

from docker.api import APIClient
from docker.errors import ImageNotFound

from tests.debian import unpack

TINY_IMAGE = "gpuplatform-test/tiny:1"  # raise the tag when the content changes
# root has no password: busybox `su`, which is setuid, stands in for sudo.
USERS = "root::0:0:root:/:/bin/sh\nwork:x:1000:1000:work:/tmp:/bin/sh\n"
GROUPS = "root:x:0:\nwork:x:1000:\n"


def ensure_tiny_image(engine_url: str = "unix:///var/run/docker.sock") -> str:
    """Return the reference of the image, importing it into the engine first where it is missing.

    It has busybox as /bin/busybox with the usual applets linked, a setuid /bin/su, and the users root and work (1000).
    """
    client = APIClient(engine_url, version="auto")
    try:
        client.inspect_image(TINY_IMAGE)
    except ImageNotFound:
        repository, tag = TINY_IMAGE.split(":")
        client.import_image_from_data(_root_filesystem(_busybox()), repository=repository, tag=tag)
    finally:
        client.close()
    return TINY_IMAGE


def _busybox() -> bytes:
    """Return Debian's busybox-static, of this machine where it is installed, else fetched without installing it."""
    installed = Path("/usr/share/doc/busybox-static"), Path("/bin/busybox")
    if all(path.exists() for path in installed):
        return installed[1].read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        unpack("busybox-static", Path(folder))
        return Path(folder, "bin/busybox").read_bytes()


def _root_filesystem(busybox: bytes) -> bytes:
    """Return a tar of the image's files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("root", 0o700)):
            _add(tar, folder, tarfile.DIRTYPE, mode)
        _add(tar, "bin/busybox", tarfile.REGTYPE, 0o755, busybox)
        _add(tar, "bin/su", tarfile.REGTYPE, 0o4755, busybox)
        _add(tar, "etc/passwd", tarfile.REGTYPE, 0o644, USERS.encode())
        _add(tar, "etc/group", tarfile.REGTYPE, 0o644, GROUPS.encode())
        for applet in (
            "sh",
            "sleep",
            "cat",
            "grep",
            "df",
            "id",
            "kill",
            "ls",
            "nc",
            "ip",
            "wget",
            "head",
            "dd",
            "tail",
        ):
            _add(tar, f"bin/{applet}", tarfile.SYMTYPE, 0o777, target="busybox")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"", target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), target
    tar.addfile(entry, io.BytesIO(content))
