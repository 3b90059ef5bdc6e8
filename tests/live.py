"""The platform under uvicorn for tests with a browser: a process of its own on the test's database and Redis."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection
from django.test import Client
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from accounts.models import User
from operations import embedded
from proxy.authorization.signing import Grant, digest
from sessions.access.engine_address import signing_keys
from sessions.models import Endpoint
from tests.ports import free_port
from tests.wait import SECONDS

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 4 * SECONDS  # beside others that start, as in tests/fleet.py


class LiveServer:
    """A server that can be ended and started again at the same address; its output goes to `log`."""

    def __init__(self, log: Path, environment: Mapping[str, str], role: str = "web", port: int = 0) -> None:
        """`role` is the management command that serves: web or appproxy; a port of 0 is any that is free."""
        self.log = log
        self._role = role
        self._environment = environment
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Of 127.0.0.1, where it answers."""
        return self._port

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Id of its process."""
        if self._process is None:
            raise RuntimeError("The server does not run.")
        return self._process.pid

    def start(self) -> None:
        """Start it and return once it listens."""
        self._port = self._port or free_port()
        address = f"127.0.0.1:{self._port}"
        command = [sys.executable, "manage.py", self._role, "--address", address]
        with self.log.open("wb") as output:
            variables = _environment() | {"COMPUTE_HTTP_ADDRESS": address} | dict(self._environment)
            self._process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS
        while not _listens(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The server did not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it as a supervisor would, or with SIGKILL as a crash would."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(log: Path, *, role: str = "web", port: int = 0, **environment: str) -> Iterator[LiveServer]:
    """Serve the test's database; the fixture `django_db_setup` must have run, and rows must be committed.

    `environment` replaces settings.
    """
    server = LiveServer(log, environment, role, port)
    try:
        server.start()
        yield server
    finally:
        server.end()


def login_cookie(user: User, url: str) -> dict[str, Any]:
    """Return the cookie that signs `user` in at `url`, as Playwright's add_cookies takes it."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return {
        "name": settings.SESSION_COOKIE_NAME,
        "value": client.cookies[settings.SESSION_COOKIE_NAME].value,
        "url": url,
    }


def app_cookie(endpoint: Endpoint) -> str:
    """Return the Cookie header that opens the app to its session's owner, as the hand-over gives it."""
    now = time.time()
    grant = Grant(
        label=endpoint.label,
        epoch=endpoint.epoch,
        user=endpoint.session.owner_id,
        login=digest("a login session"),
        issued_at=now,
        expires_at=now + 3600,
    )
    return f"gp_app={grant.to_cookie(signing_keys())}"


def app_host(server: LiveServer, endpoint: Endpoint) -> str:
    """Return the Host header by which a server knows the app."""
    return f"{endpoint.label}.{settings.COMPUTE_APPS_DOMAIN}:{server.port}"


@asynccontextmanager
async def app_websocket(server: LiveServer, endpoint: Endpoint, path: str = "/") -> AsyncIterator[ClientConnection]:
    """Open a websocket of the app at a server, as a page of the app does that its owner has opened."""
    host = app_host(server, endpoint)
    async with connect(
        f"ws://{host}{path}",
        host="127.0.0.1",
        origin=Origin(f"http://{host}"),
        additional_headers={"Cookie": app_cookie(endpoint)},
        open_timeout=START_SECONDS,
        ping_interval=None,  # a busy machine is not to be taken for a dead one
    ) as websocket:
        yield websocket


def database_environment() -> dict[str, str]:
    """Return the variable by which another process uses the test's database."""
    url = urlsplit(embedded.database_url(settings.COMPUTE_VAR_DIR))._replace(
        path="/" + connection.settings_dict["NAME"]
    )
    return {"DATABASE_URL": url.geturl()}


def _environment() -> dict[str, str]:
    """Return our own environment with the test's database; static files are served without collecting them."""
    return os.environ | {
        **database_environment(),
        "COMPUTE_WEB_PROCESSES": "1",
        "DEBUG": "true",
        "DJANGO_SETTINGS_MODULE": "tests.settings_without_debug",
    }
