"""An image with bash and tmux for tests of the terminal, made from this machine's own programs: nothing is fetched."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from docker.api import APIClient
from docker.errors import ImageNotFound

SHELL_IMAGE = "gptest/shell:5"  # raise the tag when the content changes
PROGRAMS = (
    "bash",
    "dash",
    "tmux",
    "stty",
    "cat",
    "sleep",
    "ls",
    "head",
    "dd",
    "tail",
    "wc",
    "seq",
    "yes",
    "grep",
    "mv",
    "rm",
)
HOOK_LIBRARIES = ("libpthread.so.0", "libdl.so.2")  # of the hook that divides a GPU
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
TERMINFO = ("xterm-256color", "tmux-256color", "screen", "screen-256color")
PASSWD = "root:x:0:0:root:/root:/bin/bash\nwork:x:1000:1000:work:/home/work:/bin/bash\n"
TMUX_CONF = Path(__file__).parents[1] / "images/files/tmux.conf"  # of every image that the platform builds
FOLDERS = {"tmp": 0o1777, "root": 0o700, "proc": 0o755, "etc": 0o755}


def ensure_shell_image(engine_url: str = "unix:///var/run/docker.sock") -> str:
    """Return the reference of the image, importing it into the engine first where it is missing.

    It has bash, dash as sh, tmux, sftp-server, the platform's tmux.conf, a few coreutils, what the GPU hook loads, the
    locale C.UTF-8 and the users root and work (1000).
    """
    client = APIClient(engine_url, version="auto")
    try:
        client.inspect_image(SHELL_IMAGE)
    except ImageNotFound:
        repository, tag = SHELL_IMAGE.split(":")
        changes = ["USER work", "WORKDIR /home/work", "ENV PATH=/usr/bin:/bin HOME=/home/work"]
        client.import_image_from_data(_root_filesystem(), repository=repository, tag=tag, changes=changes)
    finally:
        client.close()
    return SHELL_IMAGE


def _root_filesystem() -> bytes:
    """Return a tar of the image's files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for name, mode in FOLDERS.items():
            _add(tar, name, tarfile.DIRTYPE, mode)
        _add(tar, "home/work", tarfile.DIRTYPE, 0o755, owner=1000)
        _add(tar, "etc/passwd", tarfile.REGTYPE, 0o644, PASSWD.encode())
        _add(tar, "etc/tmux.conf", tarfile.REGTYPE, 0o644, TMUX_CONF.read_bytes())
        _add(tar, "bin/sh", tarfile.SYMTYPE, 0o777, target="dash")
        for path in sorted(_files()):
            tar.add(path, arcname=str(path))
    return buffer.getvalue()


def _files() -> set[Path]:
    """Return the programs as /bin/<name>, the libraries that they load, and what they read."""
    files = {Path("/usr/lib/locale/C.utf8"), SFTP_SERVER, *_libraries(SFTP_SERVER)}
    for name in PROGRAMS:
        if shutil.which(name) is None:
            raise RuntimeError(f"The tests of the terminal need {name} on this machine.")
        files |= {Path("/bin", name), *_libraries(Path("/bin", name))}
    libc = next(path for path in _libraries(Path("/bin/cat")) if path.name == "libc.so.6")
    files |= {libc.with_name(name) for name in HOOK_LIBRARIES}
    for name in TERMINFO:
        files.add(Path("/lib/terminfo", name[0], name))
    return files


def _libraries(program: Path) -> list[Path]:
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return [Path(word) for line in listing.splitlines() for word in line.split() if word.startswith("/")]


def _add(
    tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"", target: str = "", owner: int = 0
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), target
    entry.uid = entry.gid = owner
    tar.addfile(entry, io.BytesIO(content))
