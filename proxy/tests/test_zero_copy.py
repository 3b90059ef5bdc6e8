"""Files sent by `http.response.zerocopysend`, through uvicorn and a socket."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from uvicorn import Config, Server

from proxy.http.asgi import Receive, Scope, Send
from proxy.limits import ProxyLimits
from proxy.listener import zero_copy
from proxy.listener.dispatch import PlatformConnection
from proxy.listener.zero_copy import EXTENSION
from proxy.tests.wire import connected, request
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.loopback

DATA = os.urandom(20_000_000)  # more than the buffers of both sockets take
HEADERS = (b"content-type", b"application/octet-stream")


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Both kinds of event loops."""
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file that is sent."""
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


class Application:
    """Sends parts of the file, and keeps what became of it."""

    def __init__(self, path: Path, parts: list[dict[str, int]], length: int | None = None) -> None:
        self._path = path
        self._parts = parts
        self._length = sum(part["count"] for part in parts) if length is None else length
        self.errors: list[BaseException] = []
        self.done = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        assert EXTENSION in scope["extensions"]
        headers = [HEADERS, (b"content-length", str(self._length).encode())]
        opened = os.open(self._path, os.O_RDONLY)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for part in self._parts:
                await send({"type": EXTENSION, "file": opened, **part, "more_body": part is not self._parts[-1]})
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            os.close(opened)
            self.done += 1


@asynccontextmanager
async def serving(application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncIterator[int]:
    """Yield the port of uvicorn with the platform's protocol class."""

    def protocol(**uvicorn: Any) -> asyncio.Protocol:
        return PlatformConnection(ProxyLimits(), **uvicorn)

    listener = socket.create_server(("127.0.0.1", 0))
    config = Config(application, http=protocol, lifespan="off", log_level="critical")  # type: ignore[arg-type]
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield listener.getsockname()[1]
    finally:
        await server.shutdown(sockets=[listener])


async def test_whole_files_come_over_one_connection(file: Path) -> None:
    application = Application(file, [{"offset": 0, "count": len(DATA)}])
    async with serving(application) as port, connected(port) as client:
        for _ in range(2):
            assert (await client.ask(request("GET", "/"))).body == DATA


async def test_parts_come_in_their_order(file: Path) -> None:
    parts = [{"offset": 5, "count": 1}, {"offset": 1_000_000, "count": 9_000_000}, {"offset": 0, "count": 0}]
    async with serving(Application(file, parts)) as port, connected(port) as client:
        answer = await client.ask(request("GET", "/"))
    assert answer.body == DATA[5:6] + DATA[1_000_000:10_000_000]


async def test_slow_clients_hold_no_threads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_copy, "TURN_SECONDS", 2 * SECONDS)
    application = Application(file, [{"offset": 0, "count": len(DATA)}])
    async with serving(application) as port:
        slow = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(20)]
        for _, writer in slow:
            writer.write(request("GET", "/"))
        try:
            async with connected(port) as client, asyncio.timeout(SECONDS):
                assert (await client.ask(request("GET", "/"))).body == DATA
        finally:
            for _, writer in slow:
                writer.transport.abort()
        await eventually(lambda: application.done == 21)
    assert len(application.errors) == 20
    assert all(isinstance(error, ConnectionError) for error in application.errors)


async def test_file_that_became_shorter_ends_the_connection(file: Path) -> None:
    application = Application(file, [{"offset": 0, "count": len(DATA)}])
    os.truncate(file, 1000)
    async with serving(application) as port, connected(port) as client:
        await client.send(request("GET", "/"))
        assert len(await client.ended()) < len(DATA)
    assert isinstance(application.errors[0], OSError)


async def test_more_than_the_length_is_refused(file: Path) -> None:
    application = Application(file, [{"offset": 0, "count": 10}], length=5)
    async with serving(application) as port, connected(port) as client:
        await client.send(request("GET", "/"))
        assert not (await client.ended()).partition(b"\r\n\r\n")[2]
    assert isinstance(application.errors[0], RuntimeError)
