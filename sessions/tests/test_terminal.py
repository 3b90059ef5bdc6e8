"""The terminal's websocket through the whole ASGI application, with real containers."""

import asyncio
import secrets
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.sessions.models import Session as LoginSession
from django.db import connection
from django.test import override_settings

from accounts.models import ApiToken, TokenScope, User
from hostaccess.services import host_revoked
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.parking import services as parking
from sessions.revocation import login_watch
from sessions.terminal import freshness as terminal_freshness
from sessions.terminal.consumer import OUTPUT_WINDOW
from sessions.terminal.messages import CloseCode
from sessions.tests.terminal_client import WHEN_RESIZED, cookie_of, terminal
from tests.containers import Container, lent_container
from tests.factories import make_host, make_session, make_user, parked_session, run_session
from tests.factories import session_in as session_in_status
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def host() -> Host:
    """The host that this server is on."""
    return make_host(name=settings.COMPUTE_HOST_NAME)


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def cookie(owner: User) -> str:
    """The owner's login."""
    return cookie_of(owner)


@pytest.fixture
def container() -> Iterator[Container]:
    """A container with busybox's sh."""
    with lent_container(ensure_tiny_image()) as running:
        yield running


@pytest.fixture
def session(host: Host, owner: User, container: Container) -> Session:
    """The owner's running session in that container."""
    return session_in(container.id, host, owner)


def session_in(container_id: str, host: Host, owner: User) -> Session:
    """Return a running session in this container."""
    running = run_session(host=host, owner=owner)
    Session.objects.filter(pk=running.pk).update(container_id=container_id)
    running.refresh_from_db()
    return running


async def test_an_anonymous_browser_has_to_sign_in() -> None:
    async with terminal("anything") as client:
        assert await client.closed() == (CloseCode.SIGNED_OUT, "Sign in first.")


async def test_a_program_enters_by_its_token(session: Session, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 0.1)
    row, token = await sync_to_async(ApiToken.objects.issue)(owner)
    async with terminal(session.pk, origin="http://evil.example", token=token) as client:
        await client.type("echo $((6 * 7))\n")
        await client.read_until("42")
        await sync_to_async(row.delete)()
        assert (await client.closed())[0] == CloseCode.SIGNED_OUT


async def test_only_who_may_operate_a_session_runs_commands(session: Session, owner: User) -> None:
    tokens = [await sync_to_async(ApiToken.objects.issue)(user) for user in (owner, await sync_to_async(make_user)())]
    async with terminal(session.pk, token=tokens[1][1], kind="exec") as client:
        assert (await client.closed())[0] == CloseCode.NOT_FOUND
    wrong: tuple[object, ...] = ({"command": ""}, {"command": "a\0b"}, {"command": "x" * 100_001}, {"ack": -1}, [])
    for command in wrong:
        async with terminal(session.pk, token=tokens[0][1], kind="exec") as client:
            await client.tell(command)
            assert (await client.closed())[0] == CloseCode.PROTOCOL_BROKEN
    async with terminal(session.pk, token=tokens[0][1], kind="exec") as client:
        await client.tell({"command": "cat"})
        await client.type("")
        await client.type("after nothing\n")
        await client.read_until("after nothing")
        await client.tell({"eof": True})
        assert (await client.closed())[0] == CloseCode.SHELL_EXITED
    async with terminal(session.pk, token=tokens[0][1], kind="exec") as client:
        for _ in range(2):
            await client.tell({"eof": True})
        assert (await client.closed())[0] == CloseCode.PROTOCOL_BROKEN, "what waits for the command is bounded"
    async with terminal(session.pk, token=tokens[0][1], kind="exec") as client:
        await client.tell({"command": "sleep 1000 & echo $!; wait"})
        await client.read_until("\n")
        await sync_to_async(session.move_to)(Status.TERMINATING, Reason.USER_REQUEST)
        assert (await client.closed())[0] == CloseCode.SESSION_ENDED


async def test_tokens_that_are_not_good_open_nothing(session: Session, owner: User, cookie: str) -> None:
    _, reading = await sync_to_async(ApiToken.objects.issue)(owner, scope=TokenScope.READ)
    _, strangers = await sync_to_async(lambda: ApiToken.objects.issue(make_user()))()
    for token in (reading, "0" * 64, "x"):
        async with terminal(session.pk, cookie, token=token) as client:
            assert client.close is not None, "the cookie counts for nothing"
            assert client.close[1] == "refused"
    async with terminal(session.pk, token=strangers) as client:
        assert (await client.closed())[0] == CloseCode.NOT_FOUND


async def test_inaccessible_sessions_all_look_the_same(host: Host, cookie: str) -> None:
    strangers = await sync_to_async(run_session)(host=host)
    waiting = await sync_to_async(lambda: make_session(owner=User.objects.exclude(pk=strangers.owner_id).get()))()
    seen = set()
    for session_id in (strangers.pk, waiting.pk, "nonesuch", "a%00b"):
        async with terminal(session_id, cookie) as client:
            seen.add(await client.closed())
    assert seen == {(CloseCode.NOT_FOUND, "There is no such running session.")}


async def test_owners_learn_whether_their_session_will_run_again(owner: User, cookie: str) -> None:
    def sessions() -> dict[str, Session]:
        being_parked = run_session(owner=owner)
        parking.park(being_parked, actor=owner)
        return {
            "parking": being_parked,
            "parked": parked_session(owner=owner),
            "waiting": make_session(owner=owner, detail="Needs 1 fGPU."),
            "ended": session_in_status(Status.TERMINATED, owner=owner),
        }

    for state, session in (await sync_to_async(sessions)()).items():
        async with terminal(session.pk, cookie) as client:
            await client.closed()
            assert client.not_running["state"] == state
            assert client.not_running["ended"]
    stranger = await sync_to_async(lambda: cookie_of(make_user()))()
    async with terminal(session.pk, stranger) as client:
        await client.closed()
        assert client.not_running == {}


async def test_a_page_of_another_origin_is_refused(cookie: str) -> None:
    async with terminal("anything", cookie, origin="http://evil.example") as client:
        assert client.close is not None
        assert client.close[1] == "refused"


@pytest.mark.docker
async def test_a_missing_container_is_reported(host: Host, owner: User, cookie: str) -> None:
    session = await sync_to_async(session_in)("gptest-none", host, owner)
    async with terminal(session.pk, cookie) as client:
        assert await client.closed() == (CloseCode.ENGINE_TROUBLE, "The session's container no longer exists.")


@pytest.mark.docker
async def test_input_runs_in_the_container(session: Session, cookie: str, container: Container) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.tell({"resize": [132, 43]})
        await client.type(WHEN_RESIZED + "echo grüße $((6*7))\r")
        await client.read_until("grüße 42\r\n")
        await client.tell({"ping": 1})
    await eventually(lambda: not container.processes())


@pytest.mark.docker
async def test_a_superadmin_may_use_any_terminal_and_is_recorded(session: Session) -> None:
    superadmin = await sync_to_async(make_user)(is_superuser=True)
    async with terminal(session.pk, await sync_to_async(cookie_of)(superadmin)) as client:
        await client.type("echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")
    async with terminal(session.pk, await sync_to_async(cookie_of)(superadmin)) as client:  # soon after: one event
        await client.type("echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")
    entered = session.events.filter(reason=Reason.ENTERED).values_list("detail", "actor", "new_status")
    assert [each async for each in entered] == [(f"{superadmin} opened the terminal.", superadmin.pk, "RUNNING")]


@pytest.mark.docker
async def test_the_owners_own_entries_are_not_recorded(session: Session, cookie: str) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")
    assert not await session.events.filter(reason=Reason.ENTERED).aexists()


@pytest.mark.docker
@pytest.mark.parametrize("ending", ["disabled", "signed out", "new password"])
async def test_an_ended_login_closes_the_terminal(
    session: Session, owner: User, cookie: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        if ending == "signed out":
            LoginSession.objects.all().delete()
            return
        owner.is_active = ending != "disabled"
        owner.set_password("another long one")
        owner.save()

    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    async with terminal(session.pk, cookie) as client:
        await client.type("echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")
        await sync_to_async(end)()
        assert await client.closed() == (CloseCode.SIGNED_OUT, "You were signed out.")


@pytest.mark.docker
async def test_a_terminal_survives_a_database_outage(
    session: Session, cookie: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 0.1)
    async with terminal(session.pk, cookie) as client:
        await sync_to_async(rename)("django_session", "django_session_away")
        try:
            await eventually(lambda: caplog.text.count("could not check a login") > 1)
            await client.type("echo $((6*7))\r")
            await client.read_until("\r\n42\r\n")
        finally:
            await sync_to_async(rename)("django_session_away", "django_session")
        await sync_to_async(LoginSession.objects.all().delete)()
        assert await client.closed() == (CloseCode.SIGNED_OUT, "You were signed out.")


def rename(old: str, new: str) -> None:
    """Take a table away, as an administrator's mistake would, and bring it back."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


@pytest.mark.docker
async def test_leaving_the_shell_closes_normally(session: Session, cookie: str) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("exit\r")
        assert await client.closed() == (CloseCode.SHELL_EXITED, "The shell has ended.")


@pytest.mark.docker
async def test_the_end_of_the_session_closes_at_once(
    session: Session, cookie: str, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)  # so that only the message starts a check
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        await sync_to_async(session.move_to)(Status.TERMINATING, Reason.USER_REQUEST)
        async with asyncio.timeout(SECONDS):
            assert await client.closed() == (CloseCode.SESSION_ENDED, "The session has ended.")
    await eventually(lambda: not container.processes())


@pytest.mark.docker
async def test_revoking_its_host_closes_the_terminal(
    session: Session, cookie: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        with override_settings(COMPUTE_HOST_NAME="another"):  # to which this host has no gateway any more
            await sync_to_async(host_revoked.send)(Host, name=host.name)
            code, text = await client.closed()
    assert (code, "cannot be reached" in text) == (CloseCode.ENGINE_TROUBLE, True)


@pytest.mark.docker
async def test_a_change_of_another_session_closes_nothing(session: Session, cookie: str, host: Host) -> None:
    other = await sync_to_async(lambda: run_session(host=host, owner=session.owner))()
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        await sync_to_async(other.move_to)(Status.TERMINATING, Reason.USER_REQUEST)
        await client.type("echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")


@pytest.mark.docker
async def test_a_dead_container_ends_the_terminal(
    session: Session, cookie: str, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.shell.EXIT_CHECKS", 600)  # however busy the engine is
    async with terminal(session.pk, cookie) as client:
        await client.type("echo rea''dy\r")
        await client.read_until("ready\r\n")
        await asyncio.to_thread(container.stop)
        assert (await client.closed())[0] == CloseCode.SESSION_ENDED


@pytest.mark.docker
async def test_output_stops_at_the_flow_control_window(session: Session, cookie: str) -> None:
    async with terminal(session.pk, cookie) as client:
        client.confirms = False
        await client.type("busybox yes\r")
        while client.received < OUTPUT_WINDOW:
            await client.output()
        while client.received < 4 * OUTPUT_WINDOW and not await client.is_silent():
            await client.output()
        assert client.received <= OUTPUT_WINDOW + 128 * 1024


@pytest.mark.docker
async def test_a_flood_of_output_can_be_interrupted(session: Session, cookie: str) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("busybox yes\r")
        while client.received < 4 * OUTPUT_WINDOW:
            await client.output()
        await client.type("\x03echo $((6*7))\r")
        await client.read_until("\r\n42\r\n")


@pytest.mark.docker
async def test_a_100_kb_paste_arrives_complete(session: Session, cookie: str, container: Container) -> None:
    text = "".join(f"{secrets.token_hex(40)}\n" for _ in range(1300))
    async with terminal(session.pk, cookie) as client:
        await client.type("busybox stty -echo; cat > /tmp/pasted; echo do''ne\r")
        await client.read_until("''ne\r\n")
        for start in range(0, len(text), 16_384):
            await client.type(text[start : start + 16_384])
        await client.type("\x04")
        await client.read_until("done")
    assert container.run("cat /tmp/pasted") == text
    assert client.confirmed_input > len(text) - 16 * 1024


@pytest.mark.docker
async def test_input_beyond_the_window_is_cut_off(session: Session, cookie: str) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.type("busybox stty raw -echo; echo rea''dy; sleep 1000\r")  # else the terminal drops long lines
        await client.read_until("ready")
        for _ in range(200):
            await client.type("x" * 16_384)
        assert await client.closed() == (CloseCode.PROTOCOL_BROKEN, "Input came faster than it was confirmed.")


@pytest.mark.docker
@pytest.mark.parametrize(
    "message", [[], {"resize": [0, 5]}, {"resize": "80x24"}, {"ack": -1}, {"other": 1}, ["x" * 500]], ids=range(6)
)
async def test_a_message_that_is_not_understood_closes(session: Session, cookie: str, message: object) -> None:
    async with terminal(session.pk, cookie) as client:
        await client.tell(message)
        assert await client.closed() == (CloseCode.PROTOCOL_BROKEN, "A control message was not understood.")


@pytest.mark.docker
async def test_input_that_was_held_back_is_refused(
    session: Session, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_freshness, "MAX_AGE_SECONDS", -1.0)
    async with terminal(session.pk, cookie) as client:
        await client.type("echo $((6*7))\r")  # a client that never asks is not held to it
        await client.read_until("42")
        await client.tell({"ping": 1})
        await client.type("echo unnoticed\r")
        assert (await client.closed())[0] == CloseCode.STALE
