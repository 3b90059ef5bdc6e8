"""A session ends while its app is in use: all that is open is cut, before the container is told to stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import docker
import pytest
import requests
from django.conf import settings
from django.db import connections

from endpoints.services import open_app
from proxy.tests.wire import Client, connected, request
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session
from tests.fgpu_sessions import group_of, submit, wait_for
from tests.live import LiveServer, app_cookie, app_host, app_websocket
from tests.near_host import near_host
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

PORT: Final = 8080
LAST_CHUNK: Final = b"0\r\n\r\n"
# Echoes on a websocket, sends events and a download without end; asked to stop, it says which of them are open.
APP: Final = """
import asyncio, signal
from tornado import iostream, web, websocket

open_now = set()

class Echo(websocket.WebSocketHandler):
    def open(self):
        open_now.add("websocket")
    async def on_message(self, message):
        await self.write_message(message)
    def on_close(self):
        open_now.discard("websocket")

class Endless(web.RequestHandler):
    async def get(self, kind):
        self.kind = kind
        open_now.add(kind)
        if kind == "download":
            self.set_header("Content-Length", str(2**40))
        try:
            while True:
                self.write(bytes(2**16) if kind == "download" else b"data: x\\n\\n")
                await self.flush()
                await asyncio.sleep(0.01)
        except iostream.StreamClosedError:
            pass
    def on_connection_close(self):
        open_now.discard(self.kind)

async def main():
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    web.Application([("/echo", Echo), ("/(events|download)", Endless)]).listen(8080)
    await asked.wait()
    for _ in range(100):
        await asyncio.sleep(0)  # what has come by now is noticed
    with open("/proc/1/fd/1", "w") as log:
        print("asked to stop with open:", *sorted(open_now), file=log)

asyncio.run(main())
"""


@pytest.fixture
def web(tmp_path: Path, transactional_db: None) -> Iterator[LiveServer]:
    with near_host(tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def session(web: LiveServer) -> Session:
    """A session in which the app runs."""
    made = submit(group_of(settings.COMPUTE_HOST_NAME, 1), "0")
    wait_for(made, Status.RUNNING)
    client = docker.APIClient(version="auto")
    client.exec_start(client.exec_create(made.container_id, ["python", "-c", APP], user="work")["Id"], detach=True)
    client.close()
    return made


@pytest.fixture
def endpoint(session: Session) -> Endpoint:
    """The app, open to the session's owner."""
    made = open_app(session, f"p{PORT}", actor=session.owner).endpoint
    until(lambda: Endpoint.objects.filter(pk=made.pk, state=EndpointState.READY).exists())
    return made


def test_connections_are_cut_before_the_container_stops(web: LiveServer, session: Session, endpoint: Endpoint) -> None:
    headers = {"Host": app_host(web, endpoint), "Cookie": app_cookie(endpoint)}

    def status() -> int:
        return requests.get(f"{web.url}/", headers=headers, timeout=SECONDS).status_code

    def terminate() -> None:
        services.terminate(session, actor=session.owner)
        connections.close_all()  # of the thread

    until(lambda: status() == 404)  # it has no front page
    asyncio.run(open_all_and_be_cut(web, endpoint, terminate))
    assert status() == 410
    wait_for(session, Status.TERMINATED)
    log = until(lambda: Session.objects.get(pk=session.pk).log_tail)
    assert log.splitlines() == [f"{session.pk} ready", "asked to stop with open:"]


async def open_all_and_be_cut(web: LiveServer, endpoint: Endpoint, end: Callable[[], None]) -> None:
    """Open a websocket, events and a download, call `end`, and return once all three have been cut."""
    async with (
        app_websocket(web, endpoint, "/echo") as talking,
        under_way(web, endpoint, "/events") as events,
        under_way(web, endpoint, "/download") as download,
    ):
        await talking.send("still here")
        assert await talking.recv() == "still here"
        await asyncio.to_thread(end)
        async with asyncio.timeout(SECONDS):
            await talking.wait_closed()
            await cut(events)
            await cut(download)


@asynccontextmanager
async def under_way(web: LiveServer, endpoint: Endpoint, path: str) -> AsyncIterator[Client]:
    """Yield a connection on which an answer has begun."""
    async with connected(web.port) as client:
        await client.send(request("GET", path, b"", app_host(web, endpoint), Cookie=app_cookie(endpoint)))
        assert (await client.head()).status == 200
        yield client


async def cut(client: Client) -> None:
    """Return once the connection has ended; fail where the app ends its answer in peace."""
    with suppress(ConnectionError):
        while data := await client.reader.read(2**20):
            assert not data.endswith(LAST_CHUNK)
