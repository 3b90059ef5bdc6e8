"""What is open between browsers and apps, and what becomes of it: real processes, and many connections."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import requests
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve

from accounts.models import ApiToken
from sessions.models import Endpoint
from tests.app_servers import app_server
from tests.factories import make_endpoint, run_reachable_session
from tests.live import LiveServer, app_cookie, app_websocket, serving
from tests.ports import free_port
from tests.wait import SECONDS, until
from tests.workers import is_listening

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

LOOPBACK: Final = "127.0.0.0/8"  # where the apps of these tests are, instead of in containers
WEBSOCKETS: Final = 100
PACE: Final = 0.05  # seconds between two messages: about as fast as somebody types


def reachable_endpoint(port: int) -> Endpoint:
    """Return an app at this port of this machine, which stands for its container."""
    session = run_reachable_session()
    session.address = "127.0.0.1"
    session.save()
    return make_endpoint(session, port=port)


async def echo(connection: ServerConnection) -> None:
    """Be the app: say again what is heard."""
    async for message in connection:
        await connection.send(message)


async def talk(connection: ClientConnection, is_over: Callable[[], bool]) -> int:
    """Say numbers and hear them again until it is over; return how many there were."""
    number = 0
    while number == 0 or not is_over():
        await connection.send(str(number))
        assert await asyncio.wait_for(connection.recv(), SECONDS) == str(number)
        number += 1
        await asyncio.sleep(PACE)
    return number


async def talk_during(app: socket.socket, proxy: LiveServer, endpoint: Endpoint, restart: Callable[[], None]) -> None:
    """Have many websockets echo through the proxy before, while and after `restart` runs."""
    async with serve(echo, sock=app, ping_interval=None, open_timeout=SECONDS), AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(app_websocket(proxy, endpoint)) for _ in range(WEBSOCKETS)]
        async with asyncio.TaskGroup() as group:
            restarting = group.create_task(asyncio.to_thread(restart))
            talks = [group.create_task(talk(connection, restarting.done)) for connection in connections]
        assert min(each.result() for each in talks) > 1
        await asyncio.gather(*(talk(connection, lambda: True) for connection in connections))


def test_a_web_restart_keeps_a_hundred_websockets(tmp_path: Path) -> None:
    with ExitStack() as stack:
        app = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        endpoint = reachable_endpoint(app.getsockname()[1])
        web = stack.enter_context(serving(tmp_path / "web.log", COMPUTE_SESSION_SUBNETS=LOOPBACK))
        proxy = stack.enter_context(serving(tmp_path / "apps.log", role="appproxy", COMPUTE_SESSION_SUBNETS=LOOPBACK))

        def restart() -> None:
            web.end()
            with pytest.raises(requests.ConnectionError):
                requests.get(f"{web.url}/healthz", timeout=SECONDS)
            web.start()
            until(lambda: requests.get(f"{web.url}/healthz", timeout=SECONDS).status_code == 200)

        asyncio.run(talk_during(app, proxy, endpoint, restart))


class Named(BaseHTTPRequestHandler):
    """An app that says its name."""

    name = ""

    def do_GET(self) -> None:
        """Answer with the name."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.name)))
        self.end_headers()
        self.wfile.write(self.name.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def named_app(called: str) -> Iterator[int]:
    """Run an app that says what it is called; yield its port."""
    handler = type("Called", (Named,), {"name": called})
    with app_server(handler) as port:
        yield port


def test_a_busy_preferred_port_is_replaced(tmp_path: Path) -> None:
    pool = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.1", pool[0])))  # another program
        endpoints = [reachable_endpoint(stack.enter_context(named_app(name))) for name in ("first", "second")]
        ports = ",".join(map(str, pool))
        web = stack.enter_context(
            serving(tmp_path / "web.log", COMPUTE_APP_PORTS=ports, COMPUTE_SESSION_SUBNETS=LOOPBACK)
        )

        first = opened(web, endpoints[0], pool[0])
        assert first["port"] in pool[1:]
        assert first["note"] == f"Port {pool[0]} is taken; it has port {first['port']} instead."
        second = opened(web, endpoints[1], first["port"])
        assert {first["port"], second["port"]} == set(pool[1:])
        assert second["note"] == f"Port {first['port']} is taken; it has port {second['port']} instead."

        assert page_at(first["port_url"], endpoints[0]) == "first"
        assert page_at(second["port_url"], endpoints[1]) == "second"


def opened(web: LiveServer, endpoint: Endpoint, preferred: int) -> dict[str, Any]:
    """Return what the owner is told who opens the app by the API and prefers this port."""
    _, token = ApiToken.objects.issue(endpoint.session.owner)
    url = f"{web.url}/api/v1/sessions/{endpoint.session_id}/apps/{endpoint.app}/"
    headers = {"Authorization": f"Token {token}"}
    answer = requests.post(url, json={"preferred_port": preferred}, headers=headers, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def page_at(url: str, endpoint: Endpoint) -> str:
    """Return the app's page at an address with a port of its own, once somebody listens there."""
    address = urlsplit(url)
    port = address.port or 80
    headers = {"Host": address.netloc, "Cookie": app_cookie(endpoint)}
    until(lambda: is_listening(port))
    answer = requests.get(f"http://127.0.0.1:{port}/", headers=headers, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.text
