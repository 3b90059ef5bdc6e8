"""What an honest user notices while a stranger, or another user, attacks; the platform runs as `make up` runs it.

Each attack goes on while pages are requested and SSH handshakes made. The last line is one JSON object:
`honest_page_p95_ms` and `honest_ssh_p95_ms` without an attack and under each; CPU seconds of all web processes for a
trailer section of 200 MB; what they wrote to disk (MB of 10^6 bytes) while 400 MB were posted without a login; and the
figures of the other modules bench/abuse_*.py.
"""

import asyncio
import json
import logging
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import asyncssh
import requests

from bench import abuse_arbiter, abuse_herd, abuse_host, abuse_rendering, abuse_uid
from bench.common import SHAPE, ApiUser, load
from bench.shared_platform import bench_platform
from bench.sizes import size
from bench.terminal import cookie_of
from resources import procfs
from tests.platform import Platform

REQUESTS: Final = size(60, 3)
ATTACKERS: Final = 4
SLOW_BODIES: Final = size(600, 20)
IDLE_SSH: Final = size(150, 5)
PORTS: Final = size(60, 3)  # just below what one session may open
MEGABYTE: Final = 10**6
TRAILER_BYTES: Final = size(200, 2) * MEGABYTE
POST_BYTES: Final = size(400, 4) * MEGABYTE
TICKS: Final = 100  # of CPU time in /proc, per second (proc(5): USER_HZ)
TRAILERS: Final = b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
TRAILER: Final = b"X-Trailer: " + b"x" * 1000 + b"\r\n"

Address = tuple[str, int]


def main() -> None:
    """Run the benchmark."""
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    with bench_platform("bench-abuse", COMPUTE_SANDBOX_POOL="0") as platform:
        figures = measure(platform)
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


def measure(platform: Platform) -> dict[str, Any]:
    """Return all figures."""
    web, ssh = _address(platform.url), _address(f"ssh://{platform.environment['COMPUTE_SSH_ADDRESS']}")
    cookie = cookie_of(platform)
    attacks: dict[str, Callable[[], Any]] = {
        "under_trailers": lambda: repeated(lambda: send_trailers(web, MEGABYTE)),
        "under_bodies": lambda: slow_bodies(web),
        "under_ssh_idle": lambda: idle_connections(ssh),
        "under_ports": lambda: open_ports(platform),
    }
    pages, handshakes = {"alone": page_ms(platform, cookie)}, {"alone": ssh_ms(ssh)}
    for name, attack in attacks.items():
        with attack():
            pages[name], handshakes[name] = page_ms(platform, cookie), ssh_ms(ssh)
    with web_use(platform) as trailers:
        send_trailers(web, TRAILER_BYTES)
    with web_use(platform) as posts:
        post(web, POST_BYTES)
    return {
        "honest_page_p95_ms": pages,
        "honest_ssh_p95_ms": handshakes,
        "cpu_s_per_200mb_trailer": trailers["cpu_s"],
        "disk_mb_after_400mb_post": posts["disk_mb"],
        **abuse_herd.measure(platform),
        **abuse_host.figures(platform),
        **abuse_rendering.measure(platform),
        **abuse_uid.measure(platform),
        **abuse_arbiter.figures(),
    }


def page_ms(platform: Platform, cookie: str) -> float:
    """Return the 95th percentile of the time in which the list of sessions is loaded, over new connections."""

    def load_page() -> None:
        response = requests.get(f"{platform.url}/sessions/", headers={"Cookie": cookie}, timeout=30)
        if response.status_code != 200:
            raise RuntimeError(f"the page responded {response.status_code}")

    return _p95_ms(load_page)


def ssh_ms(ssh: Address) -> float:
    """Return the 95th percentile of the time from a connection to the server's host key."""

    def handshake() -> None:
        if asyncio.run(asyncssh.get_server_host_key(*ssh)) is None:
            raise RuntimeError("the SSH server refused the connection")

    return _p95_ms(handshake)


def _p95_ms(action: Callable[[], None]) -> float:
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return round(1000 * statistics.quantiles(times, n=20)[-1], 1)


@contextmanager
def repeated(attack: Callable[[], None]) -> Iterator[None]:
    """Repeat the attack in ATTACKERS threads during the block."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            attack()

    threads = [threading.Thread(target=run) for _ in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def send_trailers(web: Address, size_bytes: int) -> None:
    """Send a chunked body whose trailer section has this size, or as much of it as the server takes."""
    with suppress(OSError), socket.create_connection(web, timeout=30) as client:
        client.sendall(TRAILERS)
        for _ in range(size_bytes // len(TRAILER)):
            client.sendall(TRAILER)


def post(web: Address, size_bytes: int) -> None:
    """Post a body of this size without a login, or as much of it as the server takes."""
    with suppress(OSError), socket.create_connection(web, timeout=30) as client:
        client.sendall(b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % size_bytes)
        for _ in range(size_bytes // MEGABYTE):
            client.sendall(b"x" * MEGABYTE)


@contextmanager
def slow_bodies(web: Address) -> Iterator[None]:
    """Hold connections open that send the first byte of a body and no more."""
    with ExitStack() as stack:
        for _ in range(SLOW_BODIES):
            with suppress(OSError):
                client = stack.enter_context(socket.create_connection(web, timeout=30))
                client.sendall(b"POST /accounts/sign-in/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx")
        yield


@contextmanager
def idle_connections(ssh: Address) -> Iterator[None]:
    """Hold SSH connections open that never log in."""
    with ExitStack() as stack:
        for _ in range(IDLE_SSH):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(ssh, timeout=30))
        yield


@contextmanager
def open_ports(platform: Platform) -> Iterator[None]:
    """Open as many ports of a session as may be, on which nothing listens."""
    client = ApiUser(platform)
    session = str(client.post("/sessions/", SHAPE | {"image": client.image, "fgpu": "0"})[0]["id"])
    client.wait(session, "RUNNING")
    for port in range(20_000, 20_000 + PORTS):
        client.post(f"/sessions/{session}/apps/p{port}/", {})
    yield
    client.post(f"/sessions/{session}/terminate/", {})


@contextmanager
def web_use(platform: Platform) -> Iterator[dict[str, float]]:
    """Yield what the web processes use during the block, filled in at its end: CPU seconds, MB written to disk."""
    before = _use_of(platform)
    used: dict[str, float] = {}
    yield used
    after = _use_of(platform)
    used["cpu_s"] = round((after[0] - before[0]) / TICKS, 2)
    used["disk_mb"] = round((after[1] - before[1]) / MEGABYTE, 1)


def _use_of(platform: Platform) -> tuple[int, int]:
    """Return the CPU ticks and the bytes written to disk of all web processes since they started."""
    ticks = written = 0
    for process in _web_processes(urlsplit(platform.url).netloc):
        fields = procfs.stat_fields(f"{process}/stat")
        ticks += int(fields[11]) + int(fields[12])  # utime and stime
        lines = procfs.lines(f"{process}/io")
        written += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return ticks, written


def _web_processes(address: str) -> list[int]:
    """Return the command and the processes in which it serves."""
    commands = {pid: procfs.arguments(pid) for pid in procfs.pids()}
    parents = [pid for pid, words in commands.items() if b"web" in words and address.encode() in words]
    return parents + [child for parent in parents for child in procfs.children(parent)]


def _address(url: str) -> Address:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


if __name__ == "__main__":
    main()
