"""What Jupyter servers say of their last use, and how the host worker records it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.utils import timezone

from hostworker.app_processes import jupyter
from hostworker.app_processes.jupyter_activity import JupyterActivity, JupyterServer
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import EndpointState, Session
from tests.factories import make_app, make_endpoint, make_host, run_session

pytestmark = pytest.mark.loopback

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKEN = "a token"


def last_use_of(session: Session) -> datetime | None:
    return Session.objects.values_list("last_activity_at", flat=True).get(pk=session.pk)


@asynccontextmanager
async def jupyter_that_says(answers: dict[str, object], status: str = "200 OK") -> AsyncIterator[int]:
    """Serve JSON, or raw bytes, by path to whoever has the token; yield the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        is_known = f"Authorization: token {TOKEN}\r\n" in head and "no_track_activity=1" in path
        body = answers.get(path.partition("?")[0].removeprefix("/api/")) if is_known else None
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: x\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


IDLE = {"execution_state": "idle", "last_activity": "2026-03-01T11:30:00.250000Z"}
BUSY = {"execution_state": "busy", "last_activity": "2026-03-01T09:00:00Z"}
STATUS = {"last_activity": "2026-03-01T10:00:00Z", "kernels": 1}


@pytest.mark.parametrize(
    ("status", "kernels", "expected"),
    [
        (STATUS, [], NOW.replace(hour=10)),
        (STATUS, [IDLE], NOW.replace(hour=11, minute=30, microsecond=250_000)),
        (STATUS, [IDLE, BUSY], NOW),
        (None, [IDLE], NOW.replace(hour=11, minute=30, microsecond=250_000)),
        ({"last_activity": "2026-03-01T11:00:00"}, None, NOW.replace(hour=11)),
        ({"last_activity": "2099-01-01T00:00:00Z"}, [], NOW),
        ({"last_activity": "1999-12-31T00:00:00Z"}, [{"last_activity": "2020-01-01T00:00:00+14:00"}], None),
        ({"last_activity": "0001-01-01T00:00:00+14:00"}, [IDLE], NOW.replace(hour=11, minute=30, microsecond=250_000)),
        ({"last_activity": "yesterday"}, [{"last_activity": 7}, "kernel", None, {}], None),
        ({"last_activity": None}, {"execution_state": "busy"}, None),
        ([STATUS], "busy", None),
        (b"no JSON", b"[" * 100_000, None),
        (b"\xff", b"1" * 5_000_000, None),
    ],
)
async def test_last_use_comes_from_server_and_kernels(
    status: object, kernels: object, expected: datetime | None
) -> None:
    async with jupyter_that_says({"status": status, "kernels": kernels}) as port:
        assert await jupyter.last_use("127.0.0.1", port, TOKEN, NOW) == expected


async def test_refusing_silent_or_missing_server_has_no_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter, "TIMEOUT_SECONDS", 0.2)
    async with jupyter_that_says({"status": STATUS, "kernels": [BUSY]}, "403 Forbidden") as port:
        assert await jupyter.last_use("127.0.0.1", port, TOKEN, NOW) is None
    assert await jupyter.last_use("127.0.0.1", port, TOKEN, NOW) is None

    left = asyncio.Semaphore(0)

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.release()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        assert await jupyter.last_use("127.0.0.1", server.sockets[0].getsockname()[1], TOKEN, NOW) is None
        await left.acquire()
        await left.acquire()


@pytest.fixture
def host(db: None) -> Host:
    return make_host(name=settings.COMPUTE_HOST_NAME)


def with_jupyter(host: Host, port: int = 8888, **endpoint: str) -> Session:
    """Return a running session with a Jupyter server, two pages of which are open."""
    session = run_session(host=host)
    Session.objects.filter(pk=session.pk).update(address="127.0.0.1")
    for name in ("jupyter", "jupyterlab"):
        make_app(session.image, name=name, token_variable="JUPYTER_TOKEN")
        make_endpoint(session, app=name, port=port, token=TOKEN, **endpoint)
    return session


def test_each_ready_local_server_is_asked_once(host: Host) -> None:
    session = with_jupyter(host)
    make_endpoint(session, app="p9000", port=9000)
    make_app(session.image, name="mlflow", token_variable="")
    make_endpoint(session, app="mlflow", port=5000)
    with_jupyter(host, state=EndpointState.STARTING.value)
    with_jupyter(make_host())
    with_jupyter(host).move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert JupyterActivity(host)._servers() == {JupyterServer(session.pk, "127.0.0.1", 8888, TOKEN)}


@pytest.mark.django_db(transaction=True)
async def test_poll_records_last_uses_despite_missing_servers() -> None:
    host = await sync_to_async(lambda: make_host(name=settings.COMPUTE_HOST_NAME))()
    async with jupyter_that_says({"status": {}, "kernels": [BUSY]}) as port:
        session = await sync_to_async(with_jupyter)(host, port)
        away = await sync_to_async(with_jupyter)(host, 1)
        before = timezone.now()
        await asyncio.to_thread(_poll, host)
    noted = await sync_to_async(last_use_of)(session)
    assert noted is not None
    assert noted >= before
    assert await sync_to_async(last_use_of)(away) is None
    await sync_to_async(connections.close_all)()


@pytest.mark.django_db(transaction=True)
async def test_the_time_of_use_is_the_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await sync_to_async(lambda: make_host(name=settings.COMPUTE_HOST_NAME))()
    before = timezone.now()
    async with jupyter_that_says({"status": {}, "kernels": [BUSY]}) as port:
        session = await sync_to_async(with_jupyter)(host, port)
        monkeypatch.setattr(timezone, "now", lambda: before + timedelta(hours=3))
        await asyncio.to_thread(_poll, host)
    noted = await sync_to_async(last_use_of)(session)
    assert noted is not None
    assert noted < before + timedelta(hours=1)
    await sync_to_async(connections.close_all)()


def _poll(host: Host) -> None:
    JupyterActivity(host).poll()
    connections.close_all()
