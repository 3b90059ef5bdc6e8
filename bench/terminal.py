"""A keystroke's echo through the platform against the raw exec socket of the engine, interleaved in one run.

ours: a browser's websocket -> the web process as `make up` runs it -> the engine's exec   raw: the engine's exec

Both type into busybox's shell in a session's container, each in its own. Then 50 MB of output go through one terminal
while another is typed into. Prints one JSON object as its last line; milliseconds, MB of 10^6 bytes.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import time
from contextlib import suppress
from typing import Any, Final

import requests
import uvloop

from bench.common import SHAPE, ApiUser, load
from bench.shared_platform import bench_platform
from bench.sizes import size
from engine.containers import container_name
from engine.engine import Engine
from engine.shell import Shell
from resources import procfs
from tests.platform import ADMIN, Platform
from tests.tiny_image import ensure_tiny_image
from tests.web_terminal import WebTerminal, web_terminal

ENGINE: Final = "unix:///var/run/docker.sock"
KEYS: Final = size(100, 10)  # in a row, before the other's turn
FLOOD: Final = size(50_000_000, 500_000)
CLEAR: Final = "\x15"  # Ctrl-U: the line of the shell is empty again

READ_BYTES: Final = 2**20
QUIET_SECONDS: Final = 0.2


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(20, 1))
    rounds = parser.parse_args().rounds
    with bench_platform("bench-terminal", COMPUTE_SANDBOX_POOL="0", COMPUTE_WEB_PROCESSES="1") as platform:
        sessions = two_sessions(platform)
        figures = uvloop.run(measure(platform, cookie_of(platform), sessions, rounds))
    sys.stdout.write(json.dumps(figures | {"rounds": rounds, "keys": rounds * KEYS, "load": load()}) + "\n")


def two_sessions(platform: Platform) -> list[str]:
    """Return the ids of two running sessions of the tiny image, which has neither bash nor tmux to wait for."""
    image = ensure_tiny_image()
    record = {"reference": image, "environment": "Tiny", "version": "1", "is_enabled": True}
    ApiUser(platform, ADMIN).post("/admin/images/", record)
    client = ApiUser(platform)
    shape = SHAPE | {"image": image, "fgpu": "0"}
    ids = [str(client.post("/sessions/", shape)[0]["id"]) for _ in range(2)]
    for session in ids:
        client.wait(session, "RUNNING")
    return ids


def cookie_of(platform: Platform, email: str = "user@example.org") -> str:
    """Return the header that signs a demo user in."""
    address = f"{platform.url}/accounts/sign-in/"
    browser = requests.Session()
    browser.get(address, timeout=30)
    form = {"login": email, "password": platform.passwords[email], "csrfmiddlewaretoken": browser.cookies["gp_csrf"]}
    browser.post(address, form, headers={"Referer": address}, timeout=30).raise_for_status()
    return f"gp_session={browser.cookies['gp_session']}"


class RawTerminal:
    """The raw exec socket, used as a WebTerminal is."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def type(self, text: str) -> None:
        """Send keystrokes."""
        await self._shell.write(text.encode())

    async def receive(self, limit: int) -> bytes:
        """Return the next output, whatever its size."""
        return await self._shell.read()


Terminal = WebTerminal | RawTerminal


async def measure(platform: Platform, cookie: str, sessions: list[str], rounds: int) -> dict[str, Any]:
    """Return all figures."""
    shell = await Shell.start(Engine(ENGINE), container_name(sessions[1], 1))
    async with web_terminal(platform.url, sessions[0], cookie) as ours:
        terminals: dict[str, Terminal] = {"raw_ms": RawTerminal(shell), "ours_ms": ours}
        taken: dict[str, list[float]] = {name: [] for name in terminals}
        for terminal in terminals.values():
            await terminal.type("PS1=\r")
            await settled(terminal)
        for number in range(rounds + 1):
            for name, terminal in terminals.items():
                times = [await echo_ms(terminal) for _ in range(KEYS)]
                await terminal.type(CLEAR)
                await settled(terminal)
                if number:  # the first round warms up
                    taken[name] += times
        figures: dict[str, Any] = {name: summary(values) for name, values in taken.items()}
        figures["added_ms"] = round(figures["ours_ms"]["p50"] - figures["raw_ms"]["p50"], 3)
        async with web_terminal(platform.url, sessions[0], cookie) as flooded:
            figures["flood"] = await flood(platform, flooded, ours)
    await shell.hang_up()
    return figures


async def echo_ms(terminal: Terminal) -> float:
    """Return how many milliseconds a key's echo takes."""
    started = time.perf_counter()
    await terminal.type("x")
    while b"x" not in await terminal.receive(READ_BYTES):
        pass
    return (time.perf_counter() - started) * 1000


async def settled(terminal: Terminal) -> None:
    """Take what is still to come of the shell's answer to the last line."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                await terminal.receive(READ_BYTES)


async def flood(platform: Platform, flooded: WebTerminal, other: WebTerminal) -> dict[str, Any]:
    """Return what FLOOD bytes of output through one terminal take, and do to another and to the web process."""
    make = f"head -c {FLOOD} /dev/urandom > /tmp/big; busybox md5sum < /tmp/big; echo ma''de"
    await flooded.type(f"{make}\r")
    said = (await flooded.read_until("made\r\n")).decode()
    web = web_process(platform)
    before = resident(web, "VmRSS")
    await flooded.run("busybox stty raw -echo; echo STA''RT; cat /tmp/big; echo EN''D", "START\n")
    started = time.perf_counter()
    receiving = asyncio.create_task(digest_of(flooded))
    echoes = []
    while not receiving.done():
        echoes.append(await echo_ms(other))
        if len(echoes) % KEYS == 0:
            await other.type(CLEAR)
    digest = await receiving
    seconds = time.perf_counter() - started
    return {
        "mb_per_s": round(FLOOD / seconds / 1e6, 1),
        "is_whole": digest in said,
        "echo_meanwhile_ms": summary(echoes),
        "web_growth_mb": round((resident(web, "VmHWM") - before) / 1e6, 1),
    }


async def digest_of(terminal: WebTerminal) -> str:
    """Return the digest of the next FLOOD bytes."""
    digest, left = hashlib.md5(), FLOOD
    while left:
        data = await terminal.receive(left)
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


def web_process(platform: Platform) -> int:
    """Return the platform's web process."""
    address = platform.url.removeprefix("http://").encode()
    for pid in procfs.pids():
        if {b"web", address} <= {*procfs.arguments(pid)}:
            return pid
    raise RuntimeError("the web process is not there")


def resident(process: int, name: str) -> int:
    """Return its memory in bytes: VmRSS is that of now, VmHWM the most that it ever had."""
    (line,) = (line for line in procfs.lines(f"{process}/status") if line.startswith(name))
    return int(line.split()[1]) * 1024


def summary(values: list[float]) -> dict[str, float]:
    """Return median and 99th percentile in milliseconds."""
    return {
        "p50": round(statistics.median(values), 3),
        "p99": round(statistics.quantiles(values, n=100, method="inclusive")[-1], 3),
    }


if __name__ == "__main__":
    main()
