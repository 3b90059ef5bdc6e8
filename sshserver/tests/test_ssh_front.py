"""What the SSH front does not let happen without end: failures, strangers, keys, connections and channels."""

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

from accounts.models import User
from accounts.services import add_ssh_key
from sessions.models import Session
from sshserver import attempts as attempts_module
from sshserver import front as front_module
from sshserver.attempts import MOST_FAILURES, WINDOW_SECONDS, Attempts
from sshserver.front import SshFront
from sshserver.host_key import NAME, load_host_key
from tests.containers import Container, running_container
from tests.factories import make_host, make_user, run_session
from tests.shell_image import ensure_shell_image
from tests.wait import eventually

CUT_OFF = (asyncssh.ConnectionLost, ConnectionError)
HERE, THERE = "192.0.2.1", "192.0.2.2"
KEY, STRANGE, HOST_KEY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))


def test_an_address_with_too_many_failures_waits_until_they_are_long_ago() -> None:
    attempts = Attempts()
    for second in range(MOST_FAILURES):
        assert not attempts.is_blocked(HERE, second)
        assert attempts.failed(HERE, second) == second + 1
    assert attempts.is_blocked(HERE, MOST_FAILURES)
    assert not attempts.is_blocked(THERE, MOST_FAILURES)
    assert not attempts.is_blocked(HERE, WINDOW_SECONDS + 1)


def test_a_log_in_forgives_what_failed_before() -> None:
    attempts = Attempts()
    for _ in range(MOST_FAILURES):
        attempts.failed(HERE, 0)
    attempts.succeeded(HERE)
    assert not attempts.is_blocked(HERE, 0)


def test_the_failures_of_few_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "MOST_ADDRESSES", 3)
    attempts = Attempts()
    for number in range(10):
        attempts.failed(str(number), 0)
    assert list(attempts._failures) == ["7", "8", "9"]


def test_the_host_key_is_made_once_by_whoever_comes_first_and_read_by_nobody_else(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(load_host_key, [tmp_path / "var"] * 8))
    assert len({key.export_public_key() for key in keys}) == 1
    assert stat.S_IMODE((tmp_path / "var" / NAME).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "var").iterdir()] == [NAME]


async def enter(port: int, name: str, *keys: asyncssh.SSHKey) -> asyncssh.SSHClientConnection:
    """Connect as this session's guest. Raises asyncssh.Error, or OSError where the front does not even answer."""
    options = {"known_hosts": None, "config": None, "agent_path": None, "client_keys": list(keys)}
    return await asyncssh.connect("127.0.0.1", port, username=name, **options)


@pytest_asyncio.fixture
async def front() -> AsyncIterator[SshFront]:
    """A front in this process, with the port as `port`."""
    yield SshFront(lambda session_id: None)
    await sync_to_async(connections.close_all)()


@pytest_asyncio.fixture
async def port(transactional_db: None, front: SshFront) -> AsyncIterator[int]:
    """The port of the front."""
    async with front.listening("127.0.0.1", 0, HOST_KEY) as port:
        yield port


@pytest.fixture
def container() -> Iterator[Container]:
    """A container with bash."""
    with running_container(ensure_shell_image()) as running:
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
async def test_after_too_many_failures_the_address_is_not_even_asked_for_a_key(
    front: SshFront, port: int, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempts_module, "MOST_FAILURES", 2)
    for _ in range(2):
        with pytest.raises(asyncssh.PermissionDenied):
            await enter(port, session.pk, STRANGE)
    with pytest.raises(CUT_OFF):
        await enter(port, session.pk, KEY)
    assert "no key of a client at 127.0.0.1 was accepted (2 times lately)" in caplog.text
    front.attempts.succeeded("127.0.0.1")
    (await enter(port, session.pk, KEY)).close()


@pytest.mark.docker
async def test_who_does_not_log_in_holds_a_place_for_a_while_only_and_there_are_few(
    front: SshFront, port: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "MOST_STRANGERS", 1)
    _, mute = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises(CUT_OFF):
        await enter(port, session.pk, KEY)
    mute.close()
    await eventually(lambda: not front.connections)
    first = await enter(port, session.pk, KEY)
    await eventually(lambda: all(each.guest for each in front.connections))
    (await enter(port, session.pk, KEY)).close()
    first.close()


@pytest.mark.loopback
async def test_a_client_that_offers_too_many_keys_is_told_to_name_one(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "KEYS_OFFERED", 3)
    keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(4)]
    with pytest.raises(asyncssh.DisconnectError, match="Too many keys offered"):
        await enter(port, "x", *keys)


@pytest.mark.docker
async def test_a_user_has_few_connections_and_a_connection_few_channels(
    port: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "MOST_OF_A_USER", 1)
    monkeypatch.setattr(front_module, "MOST_CHANNELS", 2)
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
async def test_a_strange_session_name_is_only_unknown(port: int, name: str) -> None:
    with pytest.raises(asyncssh.Error):
        await enter(port, name, STRANGE)


@pytest.mark.loopback
async def test_neither_passwords_nor_nothing_opens_anything(port: int) -> None:
    quiet: dict[str, Any] = {"known_hosts": None, "config": None, "agent_path": None, "client_keys": []}
    for options in ({"password": "x"}, {}):
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect("127.0.0.1", port, username="x", **quiet, **options)


@pytest.mark.docker
async def test_no_ports_but_the_sessions_own_are_forwarded(port: int, session: Session) -> None:
    async with await enter(port, session.pk, KEY) as connection:
        for target in ("127.0.0.2", "169.254.169.254", "localhost.example.org", ""):
            with pytest.raises(asyncssh.ChannelOpenError, match="Only localhost of the session"):
                await connection.open_connection(target, port)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 0, "127.0.0.1", port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/var/run/docker.sock")


@pytest.mark.docker
async def test_the_users_agent_is_not_taken_to_the_platform(front: SshFront, port: int, session: Session) -> None:
    options: dict[str, Any] = {"known_hosts": None, "config": None, "client_keys": [KEY], "agent_forwarding": True}
    async with asyncssh.connect("127.0.0.1", port, username=session.pk, agent_path="/nowhere", **options) as connection:
        assert (await connection.run("echo agent=$SSH_AUTH_SOCK")).stdout == "agent=\n"
        (entered,) = front.connections
        assert entered._link is not None
        assert entered._link.get_agent_path() is None


@pytest.mark.docker
async def test_a_front_that_is_stopped_ends_what_its_guests_run(
    front: SshFront, session: Session, container: Container
) -> None:
    async with front.listening("127.0.0.1", 0, HOST_KEY) as port:
        connection = await enter(port, session.pk, KEY)
        commands = [await connection.create_process(command) for command in ("sleep 1000", "cat")]
        await eventually(lambda: len(container.processes()) == len(commands))
    await eventually(lambda: not container.processes())
    assert "is being restarted" in (await commands[0].stderr.read())


@pytest.mark.docker
async def test_every_entry_is_logged_a_superadmins_into_what_is_anothers_as_such(
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
async def test_neither_input_that_nobody_reads_nor_output_that_nobody_takes_is_heaped_up(
    front: SshFront, port: int, session: Session, container: Container
) -> None:
    async with await enter(port, session.pk, KEY) as connection:
        reader = await connection.create_process("sleep 1000", encoding=None)
        (reading,) = front.channels
        writer = await connection.create_process("yes", encoding=None, window=64 * 1024)
        (writing,) = front.channels - {reading}
        reader.stdin.write(b"x" * 2**24)
        assert len(await writer.stdout.readexactly(1000)) == 1000
        for _ in range(100):  # more than long enough for 16 MB
            await asyncio.sleep(0.01)
            assert reading._input_size < 2**22
            assert writing._channel is not None
            assert writing._channel.get_write_buffer_size() < 2**20
    await eventually(lambda: not container.processes())  # else the engine takes 20 s to remove it
