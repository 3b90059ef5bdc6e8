"""The limits of the SSH server: failures, pending log-ins, keys, connections and channels."""

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from accounts.credentials.ssh_keys import add_ssh_key
from accounts.models import User
from sessions.models import Session
from sshserver import login_failures as login_failures_module
from sshserver import pending_logins as pending_logins_module
from sshserver import server as server_module
from sshserver.exec_channel import ExecChannel
from sshserver.forward_channel import ForwardChannel
from sshserver.host_key import NAME, load_host_key
from sshserver.login_failures import MAX_FAILURES, WINDOW_SECONDS, LoginFailures
from sshserver.pending_logins import MAX_PER_ADDRESS, MAX_TOTAL, PendingLogins
from sshserver.server import SshServer
from tests.containers import Container, lent_container
from tests.factories import make_host, make_user, run_session
from tests.shell_image import ensure_shell_image
from tests.wait import SECONDS, eventually

CUT_OFF = (asyncssh.ConnectionLost, ConnectionError)
HERE, THERE = "192.0.2.1", "192.0.2.2"
KEY, STRANGE, HOST_KEY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))


def test_an_address_is_blocked_while_failures_are_recent() -> None:
    failures = LoginFailures()
    for second in range(MAX_FAILURES):
        assert not failures.is_blocked(HERE, second)
        assert failures.record(HERE, second) == second + 1
    assert failures.is_blocked(HERE, MAX_FAILURES)
    assert not failures.is_blocked(THERE, MAX_FAILURES)
    assert not failures.is_blocked(HERE, WINDOW_SECONDS + 1)


def test_a_log_in_clears_earlier_failures() -> None:
    failures = LoginFailures()
    for _ in range(MAX_FAILURES):
        failures.record(HERE, 0)
    failures.clear(HERE)
    assert not failures.is_blocked(HERE, 0)


def test_the_oldest_addresses_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_failures_module, "MAX_ADDRESSES", 3)
    failures = LoginFailures()
    for number in range(10):
        failures.record(str(number), 0)
    assert list(failures._failures) == ["7", "8", "9"]


def test_concurrent_servers_create_one_private_host_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(load_host_key, [tmp_path / "var"] * 8))
    assert len({key.export_public_key() for key in keys}) == 1
    assert stat.S_IMODE((tmp_path / "var" / NAME).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "var").iterdir()] == [NAME]


async def enter(port: int, name: str, *keys: asyncssh.SSHKey) -> asyncssh.SSHClientConnection:
    """Connect to this session. Raises asyncssh.Error, or OSError where the server closes the connection."""
    options = {"known_hosts": None, "config": None, "agent_path": None, "client_keys": list(keys)}
    return await asyncssh.connect("127.0.0.1", port, username=name, **options)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[SshServer]:
    """A server in this process, with the port as `port`."""
    yield SshServer(lambda session_id: None)
    await sync_to_async(connections.close_all)()


@pytest_asyncio.fixture
async def port(transactional_db: None, server: SshServer) -> AsyncIterator[int]:
    """The port of the server."""
    async with server.listening("127.0.0.1", 0, HOST_KEY) as port:
        yield port


@pytest.fixture
def container() -> Iterator[Container]:
    """A container with bash."""
    with lent_container(ensure_shell_image()) as running:
        yield running


@pytest_asyncio.fixture
async def session(transactional_db: None, container: Container) -> Session:
    """A running session in that container, of somebody with the key KEY."""
    session = await sync_to_async(lambda: run_session(host=make_host(name=settings.COMPUTE_HOST_NAME)))()
    await Session.objects.filter(pk=session.pk).aupdate(container_id=container.id)
    owner = await User.objects.aget(pk=session.owner_id)
    await sync_to_async(add_ssh_key)(owner, KEY.export_public_key().decode())
    return session


@pytest.mark.docker
async def test_a_blocked_address_is_disconnected_at_once(
    server: SshServer, port: int, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login_failures_module, "MAX_FAILURES", 2)
    for _ in range(2):
        with pytest.raises(asyncssh.PermissionDenied):
            await enter(port, session.pk, STRANGE)
    with pytest.raises(CUT_OFF):
        await enter(port, session.pk, KEY)
    assert "no key of a client at 127.0.0.1 was accepted (2 times lately)" in caplog.text
    server.login_failures.clear("127.0.0.1")
    (await enter(port, session.pk, KEY)).close()


@pytest.mark.docker
async def test_idle_connections_keep_nobody_out(
    port: int, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_logins_module, "MAX_PER_ADDRESS", 2)
    mute = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    first = await enter(port, session.pk, KEY)  # counts until it has logged in
    async with asyncio.timeout(SECONDS):
        await mute[0][0].read()  # its version, and the end: it had waited longest
    for _ in range(3):
        (await enter(port, session.pk, KEY)).close()
    assert "dropped the oldest pending log-in for a connection from 127.0.0.1" in caplog.text
    first.close()
    for _, writer in mute:
        writer.close()


def test_pending_log_ins_are_bounded_by_address_and_total() -> None:
    pending, dropped = PendingLogins(), []
    for number in range(MAX_PER_ADDRESS + 2):
        pending.add(number, HERE, lambda number=number: dropped.append(number))  # type: ignore[misc]  # bound at once
    assert dropped == [0, 1]
    for number in range(100, 100 + MAX_TOTAL):
        pending.add(number, f"198.51.100.{number}", lambda number=number: dropped.append(number))  # type: ignore[misc]
    assert dropped == list(range(MAX_PER_ADDRESS + 2))
    pending.remove(100)
    pending.remove(100)
    assert not pending.add("new", THERE, lambda: None)


@pytest.mark.loopback
async def test_too_many_offered_keys_end_the_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_KEYS_OFFERED", 3)
    keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(4)]
    with pytest.raises(asyncssh.DisconnectError, match="Too many keys offered"):
        await enter(port, "x", *keys)


@pytest.mark.docker
async def test_connections_and_channels_are_limited(
    port: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS_PER_USER", 1)
    monkeypatch.setattr(server_module, "MAX_SESSION_CHANNELS", 2)
    async with await enter(port, session.pk, KEY) as connection:
        running = [await connection.create_process("cat") for _ in range(2)]
        with pytest.raises(asyncssh.ChannelOpenError, match="No more than 2 at once"):
            await connection.create_process("cat")
        running[0].stdin.write_eof()
        assert (await running[0].wait()).exit_status == 0
        assert (await connection.run("echo again")).stdout == "again\n"
        second = await enter(port, session.pk, KEY)
        with pytest.raises(asyncssh.Error):
            await second.run("true", check=True)


@pytest.mark.loopback
@pytest.mark.parametrize("name", ["", "x" * 900, "\u00e4"])
async def test_a_malformed_session_name_is_unknown(port: int, name: str) -> None:
    with pytest.raises(asyncssh.Error):
        await enter(port, name, STRANGE)


@pytest.mark.loopback
async def test_only_public_keys_authenticate(port: int) -> None:
    quiet: dict[str, Any] = {"known_hosts": None, "config": None, "agent_path": None, "client_keys": []}
    for options in ({"password": "x"}, {}):
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect("127.0.0.1", port, username="x", **quiet, **options)


@pytest.mark.docker
async def test_only_ports_of_the_session_are_forwarded(port: int, session: Session) -> None:
    async with await enter(port, session.pk, KEY) as connection:
        for target in ("127.0.0.2", "169.254.169.254", "localhost.example.org", ""):
            with pytest.raises(asyncssh.ChannelOpenError, match="Only localhost of the session"):
                await connection.open_connection(target, port)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 0, "127.0.0.1", port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/var/run/docker.sock")


@pytest.mark.docker
async def test_connections_that_are_being_forwarded_count(
    port: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = asyncio.Event()

    async def connect_late(*_: object) -> ForwardChannel:
        await is_over.wait()
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "late")

    monkeypatch.setattr(ForwardChannel, "connect", connect_late)
    monkeypatch.setattr(server_module, "MAX_CHANNELS", 2)
    async with await enter(port, session.pk, KEY) as connection, asyncio.timeout(SECONDS):
        opening = [asyncio.create_task(connection.open_connection("localhost", port)) for _ in range(3)]
        refused, _ = await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception()) for each in refused] == [
            "Only localhost of the session can be forwarded to, 2 times at once."
        ]
        is_over.set()
        await asyncio.wait(opening)
        with pytest.raises(asyncssh.ChannelOpenError, match="late"):
            await connection.open_connection("localhost", port)


@pytest.mark.docker
async def test_the_users_agent_is_not_forwarded(server: SshServer, port: int, session: Session) -> None:
    options: dict[str, Any] = {"known_hosts": None, "config": None, "client_keys": [KEY], "agent_forwarding": True}
    async with asyncssh.connect("127.0.0.1", port, username=session.pk, agent_path="/nowhere", **options) as connection:
        assert (await connection.run("echo agent=$SSH_AUTH_SOCK")).stdout == "agent=\n"
        (entered,) = server.connections
        assert entered._link is not None
        assert entered._link.get_agent_path() is None


@pytest.mark.docker
async def test_stopping_the_server_ends_its_processes(
    server: SshServer, session: Session, container: Container
) -> None:
    async with server.listening("127.0.0.1", 0, HOST_KEY) as port:
        connection = await enter(port, session.pk, KEY)
        commands = [await connection.create_process(command) for command in ("sleep 1000", "cat")]
        await eventually(lambda: len(container.processes()) == len(commands))
    await eventually(lambda: not container.processes())
    assert "is being restarted" in (await commands[0].stderr.read())


@pytest.mark.docker
async def test_a_superadmins_log_in_is_logged_as_such(
    port: int, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    await User.objects.filter(pk=session.owner_id).aupdate(is_superuser=True)
    other = await sync_to_async(make_user)()
    await Session.objects.filter(pk=session.pk).aupdate(owner=other)
    async with await enter(port, session.pk, KEY):
        await eventually(lambda: "came by SSH" in caplog.text)
        words = f"as superadmin, into what is user {other.pk}'s, came by SSH from 127.0.0.1"
        assert f"session {session.pk}: user {session.owner_id} with key" in caplog.text
        assert words in caplog.text


@pytest.mark.docker
async def test_unread_input_and_output_are_bounded(
    server: SshServer, port: int, session: Session, container: Container
) -> None:
    async with await enter(port, session.pk, KEY) as connection:
        reader = await connection.create_process("sleep 1000", encoding=None)
        (reading,) = server.channels
        writer = await connection.create_process("yes", encoding=None, window=64 * 1024)
        (writing,) = server.channels - {reading}
        assert isinstance(reading, ExecChannel)
        assert isinstance(writing, ExecChannel)
        reader.stdin.write(b"x" * 2**24)
        assert len(await writer.stdout.readexactly(1000)) == 1000
        for _ in range(100):  # more than long enough for 16 MB
            await asyncio.sleep(0.01)
            assert reading._input_size < 2**22
            assert writing._channel is not None
            assert writing._channel.get_write_buffer_size() < 2**20
    await eventually(lambda: not container.processes())  # else the engine takes 20 s to remove it
