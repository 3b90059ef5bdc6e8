"""Two hosts with an engine, a host worker and a session each: the first beside the web process, the second far away.

The second one has joined: its worker and its gateway have credentials of their own, and none of the platform's.
"""

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

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from hostaccess import services
from resources.amounts.units import MIB
from resources.models import Installation
from sessions.lifecycle import Status
from sessions.models import Session
from tests.containers import ENGINE_URL, remove_containers
from tests.far_machine import FarMachine, far_machine
from tests.fgpu_sessions import group_of, submit, wait_for
from tests.gateways import Gateway, running_gateway
from tests.joined_hosts import NOT_OF_A_HOST, hosts_may_join, join
from tests.live import LiveServer, login_cookie, serving
from tests.wait import SECONDS
from tests.web_terminal import WebTerminal, web_terminal
from tests.workers import host_worker, wait_until_ready

REAL: Final = "hostworker.runtime.docker.DockerRuntime"
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

    def run(self, session: Session, command: str) -> None:
        """Start a shell command in the session's container and leave it alone."""
        url = ENGINE_URL if session is self.near else self.machine.engine_url
        client = docker.APIClient(url, version="auto")
        client.exec_start(client.exec_create(session.container_id, ["sh", "-c", command])["Id"], detach=True)
        client.close()

    def get(self, path: str, session: Session) -> requests.Response:
        """Return what the web process answers to the session's owner."""
        return requests.get(f"{self.web.url}{path}", headers={"Cookie": self.cookie(session)}, timeout=SECONDS)


@contextmanager
def two_hosts(folder: Path, image: str, *, memory: int = 256 * MIB) -> Iterator[TwoHosts]:
    """Start everything on the test's database, with sessions of `image`; logs go to `folder`."""
    token = uuid4().hex[:8]
    names = settings.COMPUTE_HOST_NAME, f"far-{token}"
    with ExitStack() as stack:
        own = f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={names[0]}"
        stack.callback(remove_containers, *own)
        stack.enter_context(host_worker(names[0], COMPUTE_HOST_GROUP=f"near-{token}", **QUIET))
        machine = stack.enter_context(far_machine())
        web = stack.enter_context(serving(folder / "web.log", COMPUTE_RUNTIME=REAL))
        stack.enter_context(hosts_may_join())
        joined = join(web.url, services.add(names[1], f"far-{token}").token, folder / "host.env")
        there = {**QUIET, **NOT_OF_A_HOST, **joined, "COMPUTE_DOCKER_URL": machine.engine_url}
        gateway = stack.enter_context(running_gateway(names[1], folder / "gateway.log", machine=machine, **there))
        there |= {"COMPUTE_GATEWAY_URL": gateway.url}
        stack.enter_context(host_worker(names[1], on=machine.on_it, **there))
        machine.take_image(image)
        for name in names:
            wait_until_ready(name)
        near, far = (submit(group_of(name, 1), "0", image, memory=memory) for name in names)
        for session in (near, far):
            wait_for(session, Status.RUNNING)
        yield TwoHosts(web, machine, gateway, near, far)


@asynccontextmanager
async def terminal(hosts: TwoHosts, session: Session) -> AsyncIterator[WebTerminal]:
    """Open the session's terminal at the web process, as its owner."""
    cookie = await sync_to_async(hosts.cookie)(session)
    async with web_terminal(hosts.web.url, session.pk, cookie) as opened:
        yield opened
