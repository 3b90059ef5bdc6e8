"""deploy/nginx.conf and the server of docs/apps-by-port.md run as they stand, but for addresses and certificates."""

import asyncio
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from operations.machine.system_packages import program
from proxy.tests.app import most_under_way
from proxy.tests.black_box import log_in, seen
from proxy.tests.servers import running, running_by_port
from proxy.tests.site import HOST, KEYS, grant
from proxy.tests.wire import PING, PONG, TEXT, connected, handshake, masked, request
from tests.ports import free_port
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

ROOT = Path(__file__).resolve().parent.parent
FRAME = (
    "daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {paths} {body} }}"
)
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def configuration(folder: Path, port: int, apps: int) -> str:
    """Return the shipped texts with our ports; by port, the public address is 127.0.0.2.

    TLS is left out unless `folder` has certificate and key; what comes without TLS, comes by the socket `folder`/http.
    """
    by_port = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs/apps-by-port.md").read_text(), re.DOTALL)
    body = re.sub(r"listen \[::\]:.*", "", "".join([(ROOT / "deploy/nginx.conf").read_text(), *by_port]))
    if has_tls := (folder / "gpu.pem").exists():
        body = body.replace("/etc/ssl/", f"{folder}/")
    else:
        body = re.sub(r"ssl_certificate\w* [^;]+;", "", body).replace(" ssl;", ";")
    tls = " ssl" if has_tls else ""
    body = body.replace("listen 80;", f"listen unix:{folder}/http;")
    body = body.replace(f"listen 443{tls};", f"listen 127.0.0.1:{port}{tls};")
    body = body.replace("192.0.2.5:10200-10299", f"127.0.0.2:{apps}")
    body = body.replace("127.0.0.1:8001", f"127.0.0.1:{apps}").replace("apps.gpu.example.org", "apps.localhost")
    paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    return FRAME.format(folder=folder, paths=paths, body=body)


def write_certificate(folder: Path, *names: str) -> None:
    """Write gpu.pem and gpu.key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, SHA256())
    )
    (folder / "gpu.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "gpu.key").write_bytes(text)


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
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port) as port:
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


async def test_nginx_serves_apps_by_tls_and_sends_http_there(tmp_path: Path) -> None:
    write_certificate(tmp_path, "gpu.example.org", "*.apps.localhost")
    trusted = ssl.create_default_context(cafile=tmp_path / "gpu.pem")
    host = HOST.partition(":")[0]
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=host)
        writer.write(request("GET", "/echo", **log_in()))
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        reader, writer = await asyncio.open_unix_connection(tmp_path / "http")
        writer.write(b"GET /a?b=c HTTP/1.1\r\nHost: gpu.example.org\r\nConnection: close\r\n\r\n")
        head = (await reader.read()).decode()
        assert (head.split()[1], "\r\nLocation: https://gpu.example.org/a?b=c\r\n" in head) == ("301", True)
        writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_nginx_refuses_old_versions_of_tls(tmp_path: Path, version: ssl.TLSVersion) -> None:
    write_certificate(tmp_path, "gpu.example.org", "*.apps.localhost")
    context = ssl.create_default_context(cafile=tmp_path / "gpu.pem")
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port) as port:
        host = HOST.partition(":")[0]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
        assert writer.get_extra_info("cipher")[1] == "TLSv1.3"
        writer.close()
        context.minimum_version = context.maximum_version = version
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
async def test_nginx_refuses_ciphers_without_authentication_of_data(tmp_path: Path, cipher: str) -> None:
    write_certificate(tmp_path, "gpu.example.org", "*.apps.localhost")
    context = ssl.create_default_context(cafile=tmp_path / "gpu.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port) as port:
        host = HOST.partition(":")[0]
        context.set_ciphers(f"{cipher}:ECDHE-ECDSA-AES128-GCM-SHA256")
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
        assert writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        writer.close()
        context.set_ciphers(cipher)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)


async def test_nginx_sends_no_program_from_http_to_https(tmp_path: Path) -> None:
    write_certificate(tmp_path, "gpu.example.org", "*.apps.localhost")
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "http")
        writer.write(b"GET /api/v1/me/ HTTP/1.1\r\nHost: gpu.example.org\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).split()[1] == b"403"
        writer.close()


async def test_nginx_forwards_ports_of_apps(tmp_path: Path) -> None:
    async with running_by_port("direct") as proxy, behind_nginx(tmp_path, port := proxy.port):
        own, cookie = f"127.0.0.1:{port}", f"gp_app_{port}={grant().to_cookie(KEYS)}"
        async with connected(port, "127.0.0.2") as client:
            assert (await client.ask(request("GET", "/echo", b"", own))).status == 401
            assert seen(await client.ask(request("GET", "/echo", b"", own, Cookie=cookie)))["size"] == 0
            assert (await client.ask(request("GET", "/echo", b"", "127.0.0.1:10999", Cookie=cookie))).status == 421


async def test_nginx_passes_backpressure_to_the_app(tmp_path: Path) -> None:
    async with running("direct") as proxy, behind_nginx(tmp_path, proxy.port) as port, connected(port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("GET", "/big", **log_in()))
        written = -1
        async with asyncio.timeout(SECONDS):
            while proxy.app.written != written or not written:
                written = proxy.app.written
                await asyncio.sleep(0.3)
        assert written < most_under_way(3)
