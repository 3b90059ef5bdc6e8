"""Dispatch of connections between platform and apps, and the listeners at ports of apps."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from uvicorn import Config, Server

from proxy.data_plane import DataPlane
from proxy.http.asgi import Receive, Scope, Send
from proxy.limits import ProxyLimits
from proxy.listener.app_ports import listening
from proxy.listener.client_connection import ClientConnection
from proxy.listener.dispatch import PlatformOnly, app_hosts, uvicorn_protocol
from proxy.pending import TOTAL_KEY
from proxy.tests.app import App, running_app
from proxy.tests.black_box import log_in, seen
from proxy.tests.site import (
    BY_PORT,
    HOST,
    SECRET,
    SITE,
    FakeControlPlane,
    authorizer,
    cookie,
    replica,
    route,
    service,
)
from proxy.tests.wire import TEXT, connected, handshake, masked, request
from tests.ports import free_port
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.loopback

PLATFORM = "platform.localhost:8000"


async def platform(scope: Scope, receive: Receive, send: Send) -> None:
    """Stand in for Django."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"12")]})
    await send({"type": "http.response.body", "body": b"the platform"})


def plane_for(app: App, limits: ProxyLimits | None = None, **changes: object) -> DataPlane:
    """Return a plane with the route to the app."""
    return DataPlane(authorizer(route(port=app.port, **changes)), FakeControlPlane(), limits)


@asynccontextmanager
async def serving(plane: DataPlane) -> AsyncIterator[int]:
    """Yield the port of uvicorn, which serves platform and apps."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_app_host = app_hosts(SITE, plane.authorizer.table)
    protocol = uvicorn_protocol(plane, is_app_host)
    config = Config(PlatformOnly(is_app_host, platform), http=protocol, lifespan="off", log_level="critical")
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    plane.start()
    try:
        yield listener.getsockname()[1]
    finally:
        plane.stop()
        await server.shutdown(sockets=[listener])


async def test_one_address_serves_platform_and_apps() -> None:
    async with running_app() as app, serving(plane_for(app)) as port:
        async with connected(port) as client:
            for _ in range(2):
                assert (await client.ask(request("GET", "/", b"", PLATFORM))).body == b"the platform"
        async with connected(port) as client:
            for _ in range(2):
                assert seen(await client.ask(request(**log_in())))["size"] == 0
        async with connected(port) as client:
            await client.send(handshake(**log_in()) + masked(TEXT, b"x"))
            assert (await client.head()).status == 101
            assert await client.frame() == (0x80 | TEXT, b"x")


async def test_connection_that_mixes_hosts_is_misdirected() -> None:
    async with running_app() as app, serving(plane_for(app)) as port:
        async with connected(port) as client:
            assert (await client.ask(request("GET", "/", b"", PLATFORM))).status == 200
            misdirected = await client.ask(request(**log_in()))
            assert (misdirected.status, misdirected.all("content-length")) == (421, ["0"])
            assert await client.ended() == b""
        async with connected(port) as client:
            assert (await client.ask(request(**log_in()))).status == 200
            assert (await client.ask(request("GET", "/", b"", PLATFORM))).status == 421
            assert await client.ended() == b""


async def test_header_section_may_arrive_in_pieces() -> None:
    async with running_app() as app, serving(plane_for(app)) as port, connected(port) as client:
        whole = request(**log_in())
        for piece in (whole[:3], whole[3:40], whole[40:-1], whole[-1:]):
            await client.send(piece)
            await asyncio.sleep(0.01)
        assert (await client.head()).status == 200


async def test_incomplete_header_section_is_closed() -> None:
    limits = ProxyLimits(head_seconds=0.3)
    async with running_app() as app, serving(plane_for(app, limits)) as port, connected(port) as client:
        await client.send(b"GET / HTTP/1.1\r\n")
        assert await client.ended() == b""


async def test_incomplete_large_header_section_for_app_is_refused() -> None:
    async with running_app() as app, serving(plane_for(app)) as port, connected(port) as client:
        client.writer.write(b"GET / HTTP/1.1\r\nHost: echo--s1.apps.localhost\r\nX: " + b"x" * 70_000)
        assert (await client.ended()).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nHost: " + PLATFORM + "\r\nHost: " + PLATFORM, 400),
        ("GET / HTTP/1.1\r\nHost: " + PLATFORM + "\r\nX: " + "x" * 100_000, 431),
        ("GET /" + "x" * 100_000 + " HTTP/1.1\r\nHost: " + PLATFORM, 431),
        ("GET / HTTP/1.0", 200),
    ],
)
async def test_heads_for_the_platform_are_checked(lines: str, status: int) -> None:
    """Also where all of them comes in one read."""
    async with running_app() as app, serving(plane_for(app)) as port, connected(port) as client:
        client.writer.write(f"{lines}\r\n\r\n".encode())
        assert (await client.ended()).startswith(f"HTTP/1.1 {status}".encode())


@pytest.mark.parametrize("is_first", [True, False])
async def test_large_header_section_for_platform_is_refused(*, is_first: bool) -> None:
    """The client has the response whatever it still sends: what comes is dropped for a while, not met with a reset."""
    limits = ProxyLimits(linger_seconds=SECONDS)
    async with running_app() as app, serving(plane_for(app, limits)) as port, connected(port) as client:
        if not is_first:
            assert (await client.ask(request("GET", "/", b"", PLATFORM))).status == 200
        await client.send(f"GET / HTTP/1.1\r\nHost: {PLATFORM}\r\nX: ".encode())
        for _ in range(20):
            await client.send(b"x" * 2**20)
        assert (await client.ended()).startswith(b"HTTP/1.1 431 ")


async def test_malformed_request_with_a_body_is_refused() -> None:
    limits = ProxyLimits(linger_seconds=SECONDS)
    async with running_app() as app, serving(plane_for(app, limits)) as port, connected(port) as client:
        await client.send(b"POST / HTTP/1.1\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20_000_000)
        assert (await client.ended()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("comes", [True, False])
async def test_shutdown_waits_for_a_request_on_its_way(*, comes: bool) -> None:
    async with running_app() as app, AsyncExitStack() as stack:
        plane = plane_for(app, ProxyLimits(first_request_seconds=SECONDS if comes else 0.1))
        port = await stack.enter_async_context(serving(plane))
        async with connected(port) as client:
            await eventually(lambda: plane.counters.count(TOTAL_KEY))
            ending = asyncio.create_task(stack.aclose())
            if comes:
                done, _ = await asyncio.wait([ending], timeout=0.5)
                assert not done
                assert (await client.ask(request("GET", "/", b"", PLATFORM))).body == b"the platform"
            assert await client.ended() == b""
            await ending


async def test_incomplete_later_header_section_for_platform_is_closed() -> None:
    limits = ProxyLimits(head_seconds=0.3)
    async with running_app() as app, serving(plane_for(app, limits)) as port, connected(port) as client:
        assert (await client.ask(request("GET", "/", b"", PLATFORM))).status == 200
        await client.send(b"GET / HTTP/1.1\r\n")
        assert await client.ended() == b""


@pytest.mark.parametrize("host", [PLATFORM, HOST])
@pytest.mark.parametrize("framing", [b"1\r\nx\r\n0\r\nX: ", b"1\r\nx\r\n0\r\nX: x\r\n" + b"X: x\r\n" * 100, b"1;x="])
async def test_endless_framing_of_a_request_ends_the_connection(host: str, framing: bytes) -> None:
    """Trailers and chunk extensions have the limit of header sections; nobody waits for their end."""
    head = request("POST", "/echo", b"", host, Transfer_Encoding="chunked", **log_in())
    async with running_app() as app, serving(plane_for(app)) as port, connected(port) as client:
        await client.send(head + framing)
        more = framing if framing.endswith(b"\n") else b"x" * 2**16
        with suppress(ConnectionError):
            for _ in range(64):
                await client.send(more[-600:] * 200 if framing.endswith(b"\n") else more)
        assert (await client.ended()).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400", b""))
        assert client.reader.at_eof() or client.writer.transport.is_closing()


async def test_platform_bodies_may_be_large_and_slow() -> None:
    limits = ProxyLimits(head_seconds=0.2)
    async with running_app() as app, serving(plane_for(app, limits)) as port, connected(port) as client:
        await client.send(f"POST / HTTP/1.1\r\nHost: {PLATFORM}\r\nContent-Length: 300000\r\n\r\n".encode())
        await asyncio.sleep(0.4)
        assert (await client.ask(b"x" * 300_000)).body == b"the platform"
        assert (await client.ask(request("GET", "/", b"", PLATFORM))).status == 200


async def test_own_port_is_open_while_its_route_exists() -> None:
    own = free_port()
    async with running_app() as app:
        plane = plane_for(app, is_public=True)
        async with listening(plane, "127.0.0.1"):
            table = plane.authorizer.table
            table.replace([route(port=app.port, is_public=True, listen_port=own)])
            await until_open(own)
            async with connected(own) as client:
                host = f"echo--s1.apps.localhost:{own}"
                assert seen(await client.ask(request("GET", "/echo", b"", host)))["size"] == 0
                assert (await client.ask(request("GET", "/echo", b"", "127.0.0.1"))).status == 421
            async with connected(own) as client:
                reply = await client.ask(request("GET", "/lab?x=1", b"", f"ports.apps.localhost:{own}"))
                assert (reply.status, reply.all("location")) == (303, [f"http://{host}/lab?x=1"])
            table.replace([route(port=app.port, is_public=True)])
            await until_closed(own)
    plane.stop()


async def test_reserved_port_is_open_without_an_app() -> None:
    own = free_port()
    plane = DataPlane(authorizer(site=BY_PORT), FakeControlPlane())
    plane.authorizer.table.replace([])
    async with listening(plane, "127.0.0.1", [own]):
        await until_open(own)
        async with connected(own) as client:
            assert (await client.ask(request("GET", "/", b"", f"127.0.0.1:{own}"))).status == 410
    plane.stop()
    await until_closed(own)


async def test_port_in_use_elsewhere_is_skipped() -> None:
    async with running_app() as app:
        plane = plane_for(app)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            first, second = taken.getsockname()[1], free_port()
            async with listening(plane, "127.0.0.1"):
                other = route(label="echo--s2", session="s2", port=app.port, listen_port=second)
                plane.authorizer.table.replace([route(port=app.port, listen_port=first), other])
                await until_open(second)


async def test_shutdown_completes_responses_and_keeps_websockets() -> None:
    async with running_app() as app:
        plane = plane_for(app)
        async with AsyncExitStack() as stack:
            server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(plane), "127.0.0.1", 0)
            stack.callback(server.close)
            stack.callback(plane.stop)
            port = server.sockets[0].getsockname()[1]
            idle, busy, talking = [await stack.enter_async_context(connected(port)) for _ in range(3)]
            assert (await idle.ask(request(**log_in()))).status == 200
            await busy.send(request("GET", "/events", **log_in()))
            assert (await busy.head()).status == 200
            await talking.send(handshake(Cookie=cookie()))
            assert (await talking.head()).status == 101
            plane.shut_down()
            assert await idle.ended() == b""
            for _ in range(4):
                await app.take_event()
            assert (await busy.ended()).endswith(b"0\r\n\r\n")
            await talking.send(masked(TEXT, b"x"))
            assert await talking.frame() == (0x80 | TEXT, b"x")
            plane.stop()
            await talking.until_closed()


async def test_app_proxy_drains_first_requests_on_their_way() -> None:
    async with running_app() as app, AsyncExitStack() as stack:
        plane = plane_for(app)
        server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(plane), "127.0.0.1", 0)
        stack.callback(server.close)
        stack.callback(plane.stop)
        async with connected(server.sockets[0].getsockname()[1]) as client:
            await eventually(lambda: plane.connections)
            draining = asyncio.create_task(plane.drain(SECONDS, 0))
            await asyncio.sleep(0)
            assert (await client.ask(request(**log_in()))).status == 200
            assert await client.ended() == b""
        await draining


async def test_responses_outlive_websockets_as_a_process_ends() -> None:
    async with running_app() as app, AsyncExitStack() as stack:
        plane = plane_for(app)
        server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(plane), "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        async with connected(port) as talking:
            await talking.send(handshake(**log_in()))
            assert (await talking.head()).status == 101
            async with connected(port) as streaming:
                await streaming.send(request("GET", "/events", **log_in()))
                streamed = await streaming.head()
                draining = asyncio.create_task(plane.drain(SECONDS, 0))
                for _ in range(4):
                    await app.take_event()
                assert (await streaming.body(streamed)).startswith(b"data: 0")
            await draining
            plane.stop()
            await talking.until_closed()


@pytest.mark.parametrize("faulty", ["authorize", "response_headers"])
async def test_internal_error_closes_the_connection(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ArithmeticError

    async with running_app() as app, serving(plane := plane_for(app)) as port:
        monkeypatch.setattr(plane.authorizer, faulty, fail)
        async with connected(port) as client:
            await client.send(request(**log_in()))
            assert b"200 OK" not in await client.ended()
        assert plane.connections == set()


async def until_open(port: int) -> None:
    """Return once the port is open."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


async def until_closed(port: int) -> None:
    """Return once the port is closed."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.01)


async def test_a_services_own_name_is_for_apps() -> None:
    async with running_app() as app:
        plane = plane_for(app)
        named = service(hosts=("models.example.org",), replicas=(replica(1, port=app.port),))
        plane.authorizer.table.replace_services([named])
        plane.authorizer.table.replace(each.route for each in named.replicas)
        asked = request("GET", "/echo", b"", "Models.example.org:8000", Authorization=f"Bearer {SECRET}")
        async with serving(plane) as port:
            async with connected(port) as client:
                assert (await client.ask(asked)).status == 200
            async with connected(port) as client:
                assert (await client.ask(request("GET", "/", b"", PLATFORM))).body == b"the platform"
                assert (await client.ask(asked)).status == 421
