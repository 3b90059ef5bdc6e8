"""The socket paths of the embedded PostgreSQL and Redis; starts nothing.

Pure standard library, because the settings module needs the addresses before Django is set up.
"""

import contextlib
import hashlib
import tempfile
from pathlib import Path
from urllib.parse import quote

SOCKET_PATH_LIMIT = 107  # bytes in sockaddr_un.sun_path, less the final NUL (unix(7))


def database_url(var_dir: Path) -> str:
    """Return the URL of the embedded PostgreSQL with its data in `var_dir`, running or not."""
    return f"postgresql://postgres@/gpuplatform?host={quote(socket_folder(var_dir))}"


def socket_folder(var_dir: Path) -> str:
    """Return the folder of the embedded PostgreSQL's socket.

    The server writes it to line 5 of postmaster.pid: the data folder, or a short one elsewhere if that path is too long
    for a socket. Before its first start, return the data folder.
    """
    data = var_dir / "postgres"
    with contextlib.suppress(OSError, IndexError):  # not started yet
        return (data / "postmaster.pid").read_text().splitlines()[4] or str(data)
    return str(data)


def redis_socket(var_dir: Path) -> Path:
    """Return the socket path of the embedded Redis; in a short temporary folder if `var_dir` is too long for one."""
    return _short(var_dir, "redis/redis.sock")


def supervisor_socket(var_dir: Path) -> Path:
    """Return the path of the socket on which `make up` is asked about its services; a short one, if need be."""
    return _short(var_dir, "run/supervisor.sock")


def _short(var_dir: Path, name: str) -> Path:
    path = var_dir / name
    if len(str(path).encode()) <= SOCKET_PATH_LIMIT:
        return path
    digest = hashlib.sha256(str(var_dir).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"gpuplatform-{digest}" / path.name
