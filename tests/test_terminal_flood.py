"""50 MB of output through the web process: whole, in bounded memory, and in nobody's way; from near and from far."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from engine.containers import ATTEMPT_LABEL, HOST_LABEL, INSTALLATION_LABEL, SESSION_LABEL, container_name
from resources.models import Installation
from sessions.models import Session
from tests.containers import Container, running_container
from tests.factories import make_host, run_session
from tests.gateways import Gateway, running_gateway
from tests.live import LiveServer, login_cookie, serving
from tests.tiny_image import ensure_tiny_image
from tests.web_terminal import WebTerminal, web_terminal

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

SIZE = 50_000_000
FEWER = 16_000_000  # enough to see memory that grows with the output
GROWTH = 24 * 2**20  # bytes; what is under way of several windows, and what a garbage collector is slow to give back


@dataclass(frozen=True)
class World:
    """A web process, and a session on this host or behind a gateway."""

    web: LiveServer
    gateway: Gateway | None
    session: Session
    container: Container
    cookie: str
    size_bytes: int

    def memory(self, name: str) -> list[int]:
        """Return the bytes of each process on the way of the output: VmRSS now, or VmHWM at most so far."""
        pids = [self.web.pid, *([self.gateway.process.pid] if self.gateway and self.gateway.process else [])]
        return [_memory(pid, name) for pid in pids]


@pytest.fixture(
    params=[
        ("near", FEWER),
        pytest.param(("near", SIZE), marks=pytest.mark.long),
        pytest.param(("far", SIZE), marks=pytest.mark.long),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Everything started, and random bytes in the container's /tmp/big."""
    place, size_bytes = request.param
    is_near = place == "near"
    name = settings.COMPUTE_HOST_NAME if is_near else "far-away"
    with ExitStack() as stack:
        gateway = None if is_near else stack.enter_context(running_gateway(name, tmp_path / "gateway.log"))
        session = run_session(host=make_host(name=name, gateway_url=gateway.url if gateway else ""))
        labels = {INSTALLATION_LABEL: Installation.current_key(), HOST_LABEL: name, SESSION_LABEL: session.pk}
        labels[ATTEMPT_LABEL] = str(session.attempt)
        container_id = container_name(session.pk, session.attempt)
        container = stack.enter_context(running_container(ensure_tiny_image(), name=container_id, labels=labels))
        Session.objects.filter(pk=session.pk).update(container_id=container.id)
        container.run(f"head -c {size_bytes} /dev/urandom > /tmp/big")
        web = stack.enter_context(serving(tmp_path / "web.log"))
        cookie = login_cookie(session.owner, web.url)
        yield World(web, gateway, session, container, f"{cookie['name']}={cookie['value']}", size_bytes)


@pytest_asyncio.fixture(autouse=True)
async def _no_connection_left() -> AsyncIterator[None]:
    yield
    await sync_to_async(connections.close_all)()


async def test_a_flood_of_output_takes_bounded_memory(world: World) -> None:
    async with (
        web_terminal(world.web.url, world.session.pk, world.cookie) as flooded,
        web_terminal(world.web.url, world.session.pk, world.cookie) as other,
    ):
        await other.run("echo rea''dy", "ready\r\n")
        before = world.memory("VmRSS")
        await flooded.run("busybox stty raw -echo; echo STA''RT; cat /tmp/big; busybox yes", "START\n")
        digest = asyncio.create_task(_digest(flooded, world.size_bytes))
        flood = asyncio.create_task(_drain(flooded, after=digest))
        for number in range(1, 7):
            await other.run(f"echo $(({number}*7))", f"\r\n{number * 7}\r\n")
        assert not flood.done(), "all this time it was flooded"
        assert await digest == await asyncio.to_thread(_digest_in, world.container)
        most = world.memory("VmHWM")
        flood.cancel()
    assert all(peak - then < GROWTH for peak, then in zip(most, before, strict=True)), (before, most)


async def _digest(terminal: WebTerminal, size_bytes: int) -> str:
    """Return the digest of the next bytes of output."""
    digest, left = hashlib.md5(), size_bytes
    while left:
        data = await terminal.receive(left)
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


async def _drain(terminal: WebTerminal, after: "asyncio.Task[str]") -> None:
    """Take what comes for ever, once the task has taken its part."""
    await after
    while True:
        await terminal.receive(2**20)


def _digest_in(container: Container) -> str:
    return container.run("busybox md5sum < /tmp/big").split()[0]


def _memory(pid: int, name: str) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
