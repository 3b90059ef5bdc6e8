"""Two hosts with an engine, a host worker and a session each: the first beside the web process, the second far away."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import docker
import requests
from asgiref.sync import sync_to_async
from django.conf import settings
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from sessions.lifecycle import Status
from sessions.models import Session
from tests.far_machine import FarMachine, far_machine
from tests.fgpu_sessions import group_of, submit, wait_for
from tests.gateways import Gateway, running_gateway
from tests.live import LiveServer, login_cookie, serving
from tests.workers import host_worker, wait_until_ready

SECONDS: Final = 20.0  # longer than anything here takes on a busy machine
REAL: Final = "sessions.runtime.docker.DockerRuntime"
QUIET: Final = {"COMPUTE_SANDBOX_POOL": "0", "COMPUTE_SIMULATED_GPUS": ""}


@dataclass(frozen=True)
class TwoHosts:
    """What runs, with a running session on each host."""

    web: LiveServer
    machine: FarMachine
    gateway: Gateway
    near: Session
    far: Session

    def cookie(self, session: Session) -> str:
        """Return the header that signs the session's owner in."""
        cookie = login_cookie(session.owner, self.web.url)
        return f"{cookie['name']}={cookie['value']}"

    def get(self, path: str, session: Session) -> requests.Response:
        """Return what the web process answers to the session's owner."""
        return requests.get(f"{self.web.url}{path}", headers={"Cookie": self.cookie(session)}, timeout=SECONDS)


@contextmanager
def two_hosts(folder: Path, image: str) -> Iterator[TwoHosts]:
    """Start everything on the test's database, with sessions of `image`; logs go to `folder`."""
    token = uuid4().hex[:8]
    names = settings.COMPUTE_HOST_NAME, f"far-{token}"
    with ExitStack() as stack:
        stack.callback(_remove_containers, names[0])
        machine = stack.enter_context(far_machine())
        machine.take_image(image)
        there = {**QUIET, "COMPUTE_DOCKER_URL": machine.engine_url}
        gateway = stack.enter_context(running_gateway(names[1], folder / "gateway.log", machine=machine, **there))
        there |= {"COMPUTE_GATEWAY_URL": gateway.url, "COMPUTE_HOST_GROUP": f"far-{token}"}
        stack.enter_context(host_worker(names[0], COMPUTE_HOST_GROUP=f"near-{token}", **QUIET))
        stack.enter_context(host_worker(names[1], on=machine.on_it, **there))
        web = stack.enter_context(serving(folder / "web.log", COMPUTE_RUNTIME=REAL))
        for name in names:
            wait_until_ready(name)
        near, far = (submit(group_of(name, 1), "0", image) for name in names)
        for session in (near, far):
            wait_for(session, Status.RUNNING)
        yield TwoHosts(web, machine, gateway, near, far)


class Terminal:
    """A browser's end of a terminal at the web process."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket

    async def run(self, command: str, answer: str) -> None:
        """Type a command and return once its answer came."""
        await self._websocket.send(f"{command}\r".encode())
        output = b""
        async with asyncio.timeout(SECONDS):
            while answer.encode() not in output:
                message = await self._websocket.recv()
                output += message if isinstance(message, bytes) else b""

    async def closed(self) -> int | None:
        """Return the code with which the server closes."""
        async with asyncio.timeout(SECONDS):
            try:
                while True:
                    await self._websocket.recv()
            except ConnectionClosed:
                return self._websocket.close_code


@asynccontextmanager
async def terminal(hosts: TwoHosts, session: Session) -> AsyncIterator[Terminal]:
    """Open the session's terminal at the web process, as its owner."""
    url = f"{hosts.web.url.replace('http', 'ws', 1)}/ws/sessions/{session.pk}/terminal/"
    headers = {"Cookie": await sync_to_async(hosts.cookie)(session), "Origin": hosts.web.url}
    async with connect(url, additional_headers=headers) as websocket:
        yield Terminal(websocket)


def _remove_containers(host_name: str) -> None:
    client = docker.from_env()
    for container in client.containers.list(all=True, filters={"label": f"gpuplatform.host={host_name}"}):
        container.remove(force=True)
    client.close()
