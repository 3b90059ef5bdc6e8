"""When a session was last used: who tells, how often that is written, and what a Jupyter server says of itself."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.utils import timezone

from hostworker import jupyter
from resources.models import Host
from sessions import activity
from sessions.activity import JupyterActivity, Server, record, used
from sessions.lifecycle import Reason, Status
from sessions.models import EndpointState, Session
from sessions.tests.terminal_client import cookie_of, terminal
from tests.containers import running_container
from tests.factories import make_app, make_endpoint, make_host, run_session
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKEN = "a token"


@pytest.fixture(autouse=True)
def _nothing_written_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "_written", {})


def last_use_of(session: Session) -> datetime | None:
    return Session.objects.values_list("last_activity_at", flat=True).get(pk=session.pk)


@pytest.mark.django_db(transaction=True)
def test_many_uses_at_once_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    session = run_session()
    writes: list[str] = []
    monkeypatch.setattr(activity, "_write", writes.append)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(used, [session.pk] * 4000))
    activity._writer.run(lambda: None).result()
    assert writes == [session.pk]


@pytest.mark.django_db(transaction=True)
def test_a_use_is_kept_while_the_session_runs_and_never_turned_back() -> None:
    session = run_session()
    used(session.pk)
    first = until(lambda: last_use_of(session))
    assert first is not None
    record(session.pk, first - timedelta(hours=1))
    assert last_use_of(session) == first
    record(session.pk, first + timedelta(seconds=1))
    assert last_use_of(session) == first + timedelta(seconds=1)
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    record(session.pk, first + timedelta(hours=1))
    assert last_use_of(session) == first + timedelta(seconds=1)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_costs_a_note_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = run_session()
    table = Session._meta.db_table
    monkeypatch.setattr(Session._meta, "db_table", "nowhere")
    with caplog.at_level(logging.WARNING):
        used(session.pk)
        activity._writer.run(lambda: None).result()
    assert "its use could not be recorded" in caplog.text
    monkeypatch.setattr(Session._meta, "db_table", table)
    used(session.pk)
    until(lambda: last_use_of(session))


@pytest.mark.docker
@pytest.mark.django_db(transaction=True)
async def test_what_is_typed_into_a_terminal_is_use_but_opening_it_is_not() -> None:
    session = await sync_to_async(lambda: run_session(host=make_host(name=settings.COMPUTE_HOST_NAME)))()
    with running_container(ensure_tiny_image()) as container:
        await Session.objects.filter(pk=session.pk).aupdate(container_id=container.id)
        cookie = await sync_to_async(lambda: cookie_of(session.owner))()
        async with terminal(session.pk, cookie) as client:
            await client.tell({"resize": [132, 43]})
            await client.output()
            assert await sync_to_async(last_use_of)(session) is None
            await client.type("x")
            await asyncio.to_thread(_until_used, session)


def _until_used(session: Session) -> None:
    until(lambda: last_use_of(session))
    connections.close_all()


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
        ({"last_activity": "yesterday"}, [{"last_activity": 7}, "kernel", None, {}], None),
        ({"last_activity": None}, {"execution_state": "busy"}, None),
        ([STATUS], "busy", None),
        (b"no JSON", b"[" * 100_000, None),
        (b"\xff", b"1" * 5_000_000, None),
    ],
)
async def test_the_last_use_is_what_server_and_kernels_say_and_a_busy_kernel_is_used_now(
    status: object, kernels: object, expected: datetime | None
) -> None:
    async with jupyter_that_says({"status": status, "kernels": kernels}) as port:
        assert await jupyter.last_use("127.0.0.1", port, TOKEN, NOW) == expected


async def test_a_server_that_refuses_or_is_mute_or_away_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter, "SECONDS", 0.2)
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


def test_each_ready_server_of_this_hosts_running_sessions_is_asked_once(host: Host) -> None:
    session = with_jupyter(host)
    make_endpoint(session, app="p9000", port=9000)
    make_app(session.image, name="mlflow", token_variable="")
    make_endpoint(session, app="mlflow", port=5000)
    with_jupyter(host, state=EndpointState.STARTING.value)
    with_jupyter(make_host())
    with_jupyter(host).move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert JupyterActivity(host)._servers() == {Server(session.pk, "127.0.0.1", 8888, TOKEN)}


@pytest.mark.django_db(transaction=True)
async def test_the_worker_notes_what_the_servers_say_and_one_that_is_away_keeps_nobody_waiting() -> None:
    host = await sync_to_async(lambda: make_host(name=settings.COMPUTE_HOST_NAME))()
    async with jupyter_that_says({"status": {}, "kernels": [BUSY]}) as port:
        session = await sync_to_async(with_jupyter)(host, port)
        away = await sync_to_async(with_jupyter)(host, 1)
        before = timezone.now()
        await asyncio.to_thread(_look, host)
    noted = await sync_to_async(last_use_of)(session)
    assert noted is not None
    assert noted >= before
    assert await sync_to_async(last_use_of)(away) is None
    await sync_to_async(connections.close_all)()


def _look(host: Host) -> None:
    JupyterActivity(host).poll()
    connections.close_all()
