"""Terminals and logs of a session on another host than this server's, by the gateway of that host."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import connections

from accounts.models import User
from endpoints.routing import routes
from engine.containers import ATTEMPT_LABEL, HOST_LABEL, INSTALLATION_LABEL, SESSION_LABEL, container_name
from engine.engine import Engine
from engine.gateway import EngineGateway
from engine.http import HEAD_LIMIT
from hostaccess.keys import encrypted, gateway_keys
from hostaccess.models import HostAccess
from resources.models import Host, Installation
from sessions.access import engine_address
from sessions.following import logs
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.revocation import login_watch
from sessions.terminal.messages import CloseCode
from sessions.tests.terminal_client import WHEN_RESIZED, cookie_of, terminal
from tests.api import client_of
from tests.containers import ENGINE_URL, Container, running_container
from tests.factories import make_host, make_user, run_session
from tests.gateways import Gateway, running_gateway
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, eventually, until
from tests.web import HTMX, browser_of, text_of

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

FAR = "far-away"
UNREACHABLE = "The gateway of the session's host cannot be reached."
BROKEN_OFF = "The gateway of the session's host broke off its answer."


@pytest.fixture
def labels() -> dict[str, str]:
    """What every container of this installation on the host FAR has."""
    return {INSTALLATION_LABEL: Installation.current_key(), HOST_LABEL: FAR}


@pytest.fixture
def engine_gateway(labels: dict[str, str]) -> EngineGateway:
    """What the gateway in this process serves."""
    return EngineGateway(Engine(ENGINE_URL), gateway_keys(FAR), FAR, labels)


@pytest_asyncio.fixture
async def gateway(engine_gateway: EngineGateway) -> AsyncIterator[str]:
    """A gateway of the host FAR in this process; its URL."""
    async with await asyncio.start_server(engine_gateway.serve, "127.0.0.1", 0, limit=HEAD_LIMIT) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await engine_gateway.close()
    await sync_to_async(connections.close_all)()


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def cookie(owner: User) -> str:
    """The owner's login."""
    return cookie_of(owner)


@pytest.fixture
def session(gateway: str, owner: User) -> Session:
    """The owner's running session on the host FAR, without a container as yet."""
    return run_session(host=make_host(name=FAR, gateway_url=gateway), owner=owner)


@pytest.fixture
def process(session: Session, tmp_path: Path) -> Iterator[Gateway]:
    """The gateway of the host FAR as the process that operators run."""
    with running_gateway(FAR, tmp_path / "gateway.log") as running:
        Host.objects.filter(name=FAR).update(gateway_url=running.url)
        yield running


@pytest.fixture
def container(session: Session, labels: dict[str, str]) -> Iterator[Container]:
    """The session's container."""
    own = {SESSION_LABEL: session.pk, ATTEMPT_LABEL: str(session.attempt)}
    name = container_name(session.pk, session.attempt)
    with running_container(ensure_tiny_image(), name=name, labels=labels | own) as running:
        Session.objects.filter(pk=session.pk).update(container_id=running.id)
        session.refresh_from_db()
        yield running


def move_to_another_host(session: Session) -> None:
    Host.objects.filter(name=FAR).update(name="other")
    session.refresh_from_db()


async def test_input_runs_on_the_other_host(
    session: Session, cookie: str, container: Container, process: Gateway
) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.tell({"resize": [132, 43]})
        await client.type(WHEN_RESIZED + "echo grüße $((6*7))\r")
        await client.read_until("grüße 42\r\n")
        await eventually(lambda: process.open_connections() == 1)
    await eventually(lambda: not container.processes())
    await eventually(lambda: process.open_connections() == 0)


async def test_the_logs_come_from_the_other_host(session: Session, container: Container, owner: User) -> None:
    def look() -> None:
        container.run("echo said $((6*7)) > /proc/1/fd/1")
        until(lambda: logs.read(session, 10))  # the engine copies it later
        assert logs.read(session, 10) == "said 42\n"
        assert ">said 42\n</pre>" in text_of(browser_of(owner), f"/sessions/{session.pk}/logs/", **HTMX)
        assert client_of(owner).get(f"/api/v1/sessions/{session.pk}/logs/").content == b"said 42\n"

    await sync_to_async(look)()


async def test_the_sessions_end_closes_the_terminal(
    session: Session, cookie: str, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)  # so that only the message starts a check
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy; sleep 1000\r")
        await client.read_until("ready\r\n")
        await sync_to_async(session.move_to)(Status.TERMINATING, Reason.USER_REQUEST)
        async with asyncio.timeout(SECONDS):
            assert await client.closed() == (CloseCode.SESSION_ENDED, "The session has ended.")
    await eventually(lambda: not container.processes())


async def test_signing_out_closes_the_terminal(
    session: Session, owner: User, cookie: str, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 0.2)
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy; sleep 1000\r")
        await client.read_until("ready\r\n")
        await User.objects.filter(pk=owner.pk).aupdate(is_active=False)
        assert await client.closed() == (CloseCode.SIGNED_OUT, "You were signed out.")
    await eventually(lambda: not container.processes())


async def test_a_dead_remote_container_ends_the_terminal(
    session: Session, cookie: str, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.shell.EXIT_CHECKS", 600)  # however busy the engine is
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        await asyncio.to_thread(container.stop)
        assert (await client.closed())[0] == CloseCode.SESSION_ENDED


async def test_a_killed_gateway_closes_the_terminal(
    session: Session, cookie: str, container: Container, process: Gateway, owner: User
) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        await asyncio.to_thread(process.end, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            code, words = await client.closed()
        # A dying process may close the terminal's connection while it still accepts the one that looks for the reason.
        assert code == CloseCode.ENGINE_TROUBLE
        assert words in (UNREACHABLE, BROKEN_OFF)
    async with terminal(session.pk, cookie) as client:
        assert await client.closed() == (CloseCode.ENGINE_TROUBLE, UNREACHABLE)
    with pytest.raises(logs.LogsUnavailableError, match=r"cannot be reached\. The session's last lines are stored"):
        await sync_to_async(logs.read)(session, 10)
    answer = await sync_to_async(lambda: client_of(owner).get(f"/api/v1/sessions/{session.pk}/logs/"))()
    assert answer.status_code == 503


async def test_a_broken_connection_hangs_up_the_shell(
    session: Session, cookie: str, container: Container, engine_gateway: EngineGateway
) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy; sleep 1000\r")
        await client.read_until("ready\r\n")
        await engine_gateway.close()
        assert await client.closed() == (CloseCode.ENGINE_TROUBLE, "The connection to the shell broke.")
    await eventually(lambda: not container.processes())


async def test_terminals_reopen_after_a_gateway_restart(
    session: Session, cookie: str, container: Container, process: Gateway
) -> None:
    for number in (1, 2):
        async with terminal(session.pk, cookie) as client:
            await client.type(f"echo $(({number}*21))\r")
            await client.read_until(f"\r\n{number * 21}\r\n")
        if number == 1:
            await asyncio.to_thread(process.end)
            await asyncio.to_thread(process.start)


async def test_mismatched_gateway_keys_are_reported(
    session: Session, cookie: str, container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    access = HostAccess(name=FAR, group_id=session.resource_group_id, role="another", encrypted_key=encrypted("x" * 32))
    await sync_to_async(access.save)()  # the host has joined again, and its gateway was not restarted
    async with terminal(session.pk, cookie) as client:
        code, words = await client.closed()
    assert code == CloseCode.ENGINE_TROUBLE
    assert "refused the request" in words
    assert "its pass is not ours" in caplog.text


async def test_a_gateway_serves_only_its_host(session: Session, cookie: str, container: Container) -> None:
    await sync_to_async(move_to_another_host)(session)
    async with terminal(session.pk, cookie) as client:
        code, words = await client.closed()
    assert (code, "refused the request" in words) == (CloseCode.ENGINE_TROUBLE, True)


async def test_a_host_without_gateway_is_unreachable(owner: User, cookie: str) -> None:
    session = await sync_to_async(lambda: run_session(host=make_host(name="lonely"), owner=owner))()
    words = "The host of this session cannot be reached from the web server: it has no gateway."
    async with terminal(session.pk, cookie) as client:
        assert await client.closed() == (CloseCode.ENGINE_TROUBLE, words)
    with pytest.raises(logs.LogsUnavailableError, match="it has no gateway"):
        await sync_to_async(logs.read)(session, 10)
    page = await sync_to_async(lambda: text_of(browser_of(owner), f"/sessions/{session.pk}/logs/"))()
    assert words in page


def test_routes_include_the_gateway(session: Session) -> None:
    assert engine_address.gateway_of(session.host) == Host.objects.get(name=FAR).gateway_url
    assert engine_address.gateway_of(make_host(name="test-host", gateway_url="http://10.0.0.1:1")) == ""
    with pytest.raises(engine_address.HostUnreachableError):
        engine_address.gateway_of(None)


@pytest.mark.parametrize("url", ["https://10.0.0.5:8010", "http://10.0.0.5", "tcp://10.0.0.5:8010", "10.0.0.5:8010"])
def test_a_gateway_url_must_be_plain_http(url: str, owner: User) -> None:
    session = run_session(host=make_host(name=FAR, gateway_url=url), owner=owner)
    for resolve in (engine_address.engine_of, engine_address.gateway_of):
        with pytest.raises(engine_address.HostUnreachableError, match="is not http://host:port"):
            resolve(session.host)
    assert "is not http://host:port" in routes.obstacle(session)
