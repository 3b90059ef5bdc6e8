"""The configuration of nginx in docs/proxy.md, run as it stands but for addresses and TLS."""

import asyncio
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpuplatform.bootstrap.system_packages import program
from proxy.tests.black_box import log_in, seen
from proxy.tests.servers import running, running_by_port
from proxy.tests.site import KEYS, grant
from proxy.tests.wire import PING, PONG, TEXT, connected, handshake, masked, request
from tests.ports import free_port
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

DOCS = Path(__file__).resolve().parent.parent / "docs/proxy.md"
FRAME = (
    "daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {paths} {body} }}"
)
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def configuration(folder: Path, port: int, apps: int) -> str:
    """Return the documented texts with our ports, without TLS; by port, the public address is 127.0.0.2."""
    found = "".join(re.findall(r"```nginx\n(.*?)```", DOCS.read_text(), re.DOTALL))
    body = re.sub(r"ssl_certificate\w* [^;]+;", "", found).replace("443 ssl", f"127.0.0.1:{port}")
    body = body.replace("192.0.2.5:10200-10299 ssl", f"127.0.0.2:{apps}")
    body = body.replace("127.0.0.1:8001", f"127.0.0.1:{apps}").replace("apps.gpu.example.org", "apps.localhost")
    paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    return FRAME.format(folder=folder, paths=paths, body=body)


@asynccontextmanager
async def behind_nginx(folder: Path, apps: int) -> AsyncIterator[int]:
    """Yield the port of an nginx that forwards to the apps' port."""
    nginx = program("nginx")
    assert nginx, "`make test` installs nginx"
    port = free_port()
    (folder / "nginx.conf").write_text(configuration(folder, port, apps))
    process = subprocess.Popen([nginx, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")])
    try:
        async with asyncio.timeout(SECONDS):
            while not await _listens(port):
                assert process.poll() is None, (folder / "error.log").read_text()
                await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(SECONDS)


async def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_nginx_forwards_requests_bodies_and_websockets(tmp_path: Path) -> None:
    async with running("fast") as proxy, behind_nginx(tmp_path, proxy.port) as port:
        async with connected(port) as client:
            for target in ("/echo/a%2Fb/./c?x=%20", "/echo//d"):
                assert seen(await client.ask(request("GET", target, **log_in())))["line"] == f"GET {target} HTTP/1.1"
            assert seen(await client.ask(request("PUT", "/echo", b"x" * 3_000_000, **log_in())))["size"] == 3_000_000
            assert (await client.ask(request("GET", "/wide", **log_in()))).body == b"ok"
            assert (await client.ask(request())).status == 401
        async with connected(port) as client:
            await client.send(handshake(**log_in()))
            assert (await client.head()).status == 101
            await client.send(masked(TEXT, b"x") + masked(PING, b"y"))
            assert [await client.frame(), await client.frame()] == [(0x80 | TEXT, b"x"), (0x80 | PONG, b"y")]


async def test_nginx_forwards_ports_of_apps(tmp_path: Path) -> None:
    async with running_by_port("fast") as proxy, behind_nginx(tmp_path, port := proxy.port):
        own, cookie = f"127.0.0.1:{port}", f"gp_app_{port}={grant().to_cookie(KEYS)}"
        async with connected(port, "127.0.0.2") as client:
            assert (await client.ask(request("GET", "/echo", b"", own))).status == 401
            assert seen(await client.ask(request("GET", "/echo", b"", own, Cookie=cookie)))["size"] == 0
            assert (await client.ask(request("GET", "/echo", b"", "127.0.0.1:10999", Cookie=cookie))).status == 421


async def test_nginx_passes_backpressure_to_the_app(tmp_path: Path) -> None:
    async with running("fast") as proxy, behind_nginx(tmp_path, proxy.port) as port, connected(port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("GET", "/big", **log_in()))
        written = -1
        async with asyncio.timeout(SECONDS):
            while proxy.app.written != written or not written:
                written = proxy.app.written
                await asyncio.sleep(0.3)
        assert written < 40 * 2**20
