"""`make bench-files`: uploads and downloads of a large file through the web process, against a raw copy and nginx.

Each round measures all four in another order, over loopback with one client. `raw` writes the same blocks to a file in
the same directory; both uploads end with the file flushed to the disk. nginx sends the same file from the page cache,
as ours does. The last line is one JSON object: medians of the rounds in MB/s of 10^6 bytes, `ratios` the medians of the
rounds' own ratios, and the server's CPU seconds per GB of a download.
"""

import argparse
import base64
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.common import load
from bench.fresh_services import MANAGE, fresh_services, shell_facts
from bench.sizes import size
from operations.machine import system_packages
from resources import procfs
from tests.ports import free_port
from tests.wait import until

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "bench-files"
HOST: Final = "127.0.0.1"
BLOCK: Final = random.Random(1).randbytes(2**20)
NAME: Final = "large.bin"
SET_UP: Final = """
import json
from accounts.models import ApiToken, User
from folders.sharing import folders as services
from folders.storage import paths as storage
root = storage.register_default_root()
user = User.objects.create_user("bench@example.org")
folder = services.create(user, "bench", root)
files = storage.root_directory(root).files_path(user.pk, folder.pk)
print(json.dumps({"token": ApiToken.objects.issue(user)[1], "folder": folder.pk, "files": files}))
"""
NGINX: Final = """
user root; worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
events {{ }}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen {host}:{port}; root {files}; }}
}}
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(7, 1))
    parser.add_argument("--megabytes", type=int, default=size(1000, 10))
    options = parser.parse_args()
    system_packages.ensure({"nginx": "nginx-light"}, print)
    with running() as servers:
        figures = measure(servers, options.rounds, options.megabytes)
    sys.stdout.write(json.dumps(figures | {"rounds": options.rounds, "load": load()}) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileServers:
    """The web process and nginx, with a folder that both can read."""

    web: int  # port
    nginx: int  # port
    web_pid: int
    nginx_pid: int
    token: str
    folder: str
    files: Path


@contextmanager
def running() -> Iterator[FileServers]:
    """Run both servers on new data."""
    web, nginx = free_port(), free_port()
    with ExitStack() as stack:
        environment = stack.enter_context(fresh_services(FOLDER, COMPUTE_STORAGE_DIR=str(FOLDER / "folders")))
        made = shell_facts(environment, SET_UP)
        configuration = FOLDER / "nginx.conf"
        configuration.write_text(NGINX.format(folder=FOLDER, host=HOST, port=nginx, files=made["files"]))
        web_process = stack.enter_context(
            server([*MANAGE, "web", "--processes", "1", "--address", f"{HOST}:{web}"], environment, web)
        )
        program = system_packages.program("nginx") or "nginx"
        nginx_process = stack.enter_context(server([program, "-c", str(configuration)], environment, nginx))
        worker = until(lambda: procfs.children(nginx_process))[0]  # it listens before it has any
        yield FileServers(
            web=web,
            nginx=nginx,
            web_pid=web_process,
            nginx_pid=worker,
            token=made["token"],
            folder=made["folder"],
            files=Path(made["files"]),
        )


@contextmanager
def server(command: list[str], environment: Mapping[str, str], port: int) -> Iterator[int]:
    """Run a server until the block ends, and give its process id once it listens."""
    process = subprocess.Popen(command, env=environment)
    try:
        until(lambda: _listens(port))
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def measure(servers: FileServers, rounds: int, megabytes: int) -> dict[str, Any]:
    """Return the figures."""
    count = megabytes * 10**6 // len(BLOCK)
    download = f"/api/v1/folders/{servers.folder}/download/?path={NAME}"
    ways: dict[str, Callable[[], float]] = {
        "upload ours": lambda: upload_seconds(servers, count),
        "upload raw": lambda: raw_seconds(servers, count),
        "download ours": lambda: download_seconds(servers.web, download, servers.token, count),
        "download nginx": lambda: download_seconds(servers.nginx, f"/{NAME}", servers.token, count),
    }
    pids = {"download ours": servers.web_pid, "download nginx": servers.nginx_pid}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in pids}
    gigabytes = count * len(BLOCK) / 1e9
    ways["upload ours"]()  # the file that is downloaded
    for number in range(rounds + 1):
        order = list(ways)
        random.shuffle(order)
        for name in order:
            before = cpu_seconds(pids[name]) if name in pids else 0.0
            speed = gigabytes * 1000 / ways[name]()
            if number:  # the first round warms up
                speeds[name].append(speed)
                if name in pids:
                    cpu[name].append((cpu_seconds(pids[name]) - before) / gigabytes)
    return {
        "upload": {"ours": median(speeds["upload ours"]), "raw": median(speeds["upload raw"])},
        "download": {"ours": median(speeds["download ours"]), "nginx": median(speeds["download nginx"])},
        "ratios": {
            "upload": ratio(speeds["upload ours"], speeds["upload raw"]),
            "download": ratio(speeds["download ours"], speeds["download nginx"]),
        },
        "cpu_s_per_gb": {name.split()[1]: round(statistics.median(values), 3) for name, values in cpu.items()},
        "megabytes": megabytes,
    }


def upload_seconds(servers: FileServers, count: int) -> float:
    """Return how long it takes to upload the blocks in one PATCH, until the file is in its place on the disk."""
    metadata = {"path": NAME, "conflict": "replace"}
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in metadata.items()}
    headers = {
        "Authorization": f"Token {servers.token}",
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(count * len(BLOCK)),
        "Upload-Metadata": ",".join(f"{name} {value}" for name, value in encoded.items()),
    }
    url = f"http://{HOST}:{servers.web}/api/v1/folders/{servers.folder}/uploads/"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers)) as answer:
        address = answer.headers["Location"]
    head = (
        f"PATCH {address} HTTP/1.1\r\nHost: {HOST}:{servers.web}\r\nAuthorization: Token {servers.token}\r\n"
        "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
        f"Content-Length: {count * len(BLOCK)}\r\n\r\n"
    )
    started = time.perf_counter()
    with socket.create_connection((HOST, servers.web)) as connection:
        connection.sendall(head.encode())
        for _ in range(count):
            connection.sendall(BLOCK)
        status = connection.recv(65536)
    assert b" 204 " in status.split(b"\r\n")[0], status
    return time.perf_counter() - started


def raw_seconds(servers: FileServers, count: int) -> float:
    """Return how long it takes to write the blocks to a file in place of another one, and flush them to the disk."""
    draft, target = servers.files.parent / "uploads" / "raw", servers.files / "raw"
    started = time.perf_counter()
    with draft.open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(BLOCK)
        os.fsync(file.fileno())
    draft.rename(target)
    return time.perf_counter() - started


def download_seconds(port: int, target: str, token: str, count: int) -> float:
    """Return how long it takes to receive the file, whose bytes are counted and dropped."""
    buffer, received = bytearray(2**20), 0
    started = time.perf_counter()
    with socket.create_connection((HOST, port)) as connection:
        lines = (f"GET {target} HTTP/1.1", f"Host: {HOST}:{port}", f"Authorization: Token {token}", "Connection: close")
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        while size := connection.recv_into(buffer):
            received += size
    seconds = time.perf_counter() - started
    assert received > count * len(BLOCK), bytes(buffer[:1000])
    return seconds


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, all threads together."""
    fields = procfs.stat_fields(f"{pid}/stat")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def median(values: list[float]) -> float:
    """Return the median, rounded."""
    return round(statistics.median(values), 1)


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return round(statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True)), 3)


if __name__ == "__main__":
    main()
