"""The socket that tells browsers what to fetch again."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session as LoginSession
from django.db import OperationalError
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from accounts.models import User
from sessions import notify
from sessions.following import consumers
from sessions.following.consumers import NOT_UNDERSTOOD, RECONNECT, SIGNED_OUT, SessionsConsumer
from sessions.notify import SUPERADMINS, user_group
from sessions.projects import services as projects
from sessions.revocation import login_watch
from sessions.routing import websocket_urlpatterns
from tests.factories import make_project, make_user
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)
OTHER = User(pk=10**6)


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def admin() -> User:
    return make_user(is_superuser=True)


class Span:
    """The time for which changes are collected: it ends once the consumer has got this many, however slowly."""

    def __init__(self) -> None:
        self.changes = 1
        self.got = 0

    async def sleep(self, seconds: float) -> None:
        """Stand in for asyncio.sleep."""
        assert seconds == consumers.COALESCE_SECONDS
        await eventually(lambda: self.got >= self.changes)


@pytest.fixture
def span(monkeypatch: pytest.MonkeyPatch) -> Span:
    span, session_changed = Span(), SessionsConsumer.session_changed

    async def count(consumer: SessionsConsumer, message: dict[str, Any]) -> None:
        await session_changed(consumer, message)
        span.got += 1

    monkeypatch.setattr(SessionsConsumer, "session_changed", count)
    monkeypatch.setattr(consumers, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": span.sleep}))
    return span


class Socket:
    """A browser's end of the socket."""

    def __init__(self, user: User | AnonymousUser) -> None:
        self.user = user

    async def open(self) -> None:
        """Sign in unless anonymous, and connect, which is always accepted."""
        client = Client()
        if not isinstance(self.user, AnonymousUser):
            await sync_to_async(client.force_login)(self.user, "django.contrib.auth.backends.ModelBackend")
        self.login = client.cookies[settings.SESSION_COOKIE_NAME].value if client.cookies else None
        scope = {"type": "websocket", "path": "/ws/sessions/", "user": self.user, "session": SessionStore(self.login)}
        connect: Any = ApplicationCommunicator  # asgiref types none of it
        self.wire = connect(SessionsConsumer.as_asgi(), scope)
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(SECONDS))["type"] == "websocket.accept"

    async def received(self) -> Any:
        """Return the next message."""
        return json.loads((await self.wire.receive_output(SECONDS))["text"])

    async def close(self) -> None:
        """Disconnect and wait for the consumer to end."""
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(SECONDS)


async def tell(group: str, *sessions: str) -> None:
    for session in sessions:
        await get_channel_layer().group_send(group, {"type": "session.changed", "session": session})


async def test_anonymous_websockets_are_closed_with_4401() -> None:
    socket = Socket(AnonymousUser())
    await socket.open()
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": SIGNED_OUT}


async def test_a_user_hears_of_their_own_sessions_alone(user: User) -> None:
    socket = Socket(user)
    await socket.open()
    await tell(user_group(OTHER.pk), "theirs")
    await tell(SUPERADMINS, "theirs")
    await tell(user_group(user.pk), "mine")
    assert await socket.received() == {"session": "mine"}
    await socket.close()


async def test_a_superadmin_gets_each_change_once(admin: User, span: Span) -> None:
    span.changes = 3
    socket = Socket(admin)
    await socket.open()
    await tell(user_group(admin.pk), "mine")  # a change of one's own comes on both groups
    await tell(SUPERADMINS, "mine", "another")
    assert await socket.received() == {"session": "another"}
    assert await socket.received() == {"session": "mine"}
    await tell(SUPERADMINS, "next")
    assert await socket.received() == {"session": "next"}
    await socket.close()


async def test_a_burst_of_changes_is_sent_once(user: User, span: Span) -> None:
    span.changes = 20
    socket = Socket(user)
    await socket.open()
    await tell(user_group(user.pk), *["mine"] * 20)
    assert await socket.received() == {"session": "mine"}
    await tell(user_group(user.pk), "next")
    assert await socket.received() == {"session": "next"}
    await tell(user_group(user.pk), "mine")
    assert await socket.received() == {"session": "mine"}
    await socket.close()


@pytest.mark.parametrize("ending", ["disabled", "signed out"])
async def test_an_ended_login_closes_the_socket(user: User, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    socket = Socket(user)
    await socket.open()
    await tell(user_group(user.pk), "mine")
    assert await socket.received() == {"session": "mine"}
    if ending == "disabled":
        user.is_active = False
        await sync_to_async(user.save)()
    else:
        await (await LoginSession.objects.aget(pk=socket.login)).adelete()
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": SIGNED_OUT}
    await socket.close()


async def test_a_demoted_superadmin_has_to_reconnect(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    socket = Socket(await User.objects.aget(pk=admin.pk))
    await socket.open()
    admin.is_superuser = False
    await sync_to_async(admin.save)()
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": RECONNECT}
    await socket.close()


async def test_a_login_is_checked_again_after_a_database_outage(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    socket, failures = Socket(user), []

    def fail(consumer: SessionsConsumer, user: User) -> list[str]:
        failures.append(user)
        raise OperationalError("away")

    await socket.open()
    with monkeypatch.context() as away:
        away.setattr(SessionsConsumer, "watched_groups", fail)
        await sync_to_async(user.save)()
        await eventually(lambda: failures)
    await (await LoginSession.objects.aget(pk=socket.login)).adelete()
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": SIGNED_OUT}
    await socket.close()


async def test_closing_while_redis_is_away_leaves_no_task(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RedisConnectionError("away")

    socket = Socket(user)
    await socket.open()
    await socket.wire.send_input({"type": "websocket.receive", "text": '{"ping": 7}'})
    assert await socket.received() == {"pong": 7}  # it has begun all that it does
    assert tasks_of_sockets()
    monkeypatch.setattr(get_channel_layer(), "group_discard", fail)
    await socket.close()
    assert not tasks_of_sockets()


def tasks_of_sockets() -> list[Any]:
    """Return the tasks that sockets have begun in this loop."""
    return [task for task in asyncio.all_tasks() if "SessionsConsumer." in str(task.get_coro())]


async def test_an_unknown_websocket_path_is_refused() -> None:
    connect: Any = ApplicationCommunicator
    wire = connect(
        URLRouter(websocket_urlpatterns), {"type": "websocket", "path": "/ws/nowhere/", "user": AnonymousUser()}
    )
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(SECONDS))["type"] == "websocket.close"


@pytest.mark.parametrize("nonsense", ["{", "[" * 100_000])
async def test_a_ping_is_answered_and_nonsense_closes(user: User, nonsense: str) -> None:
    socket = Socket(user)
    await socket.open()
    await socket.wire.send_input({"type": "websocket.receive", "text": '{"ping": 7}'})
    assert await socket.received() == {"pong": 7}
    for ignored in ('{"ping": "x"}', "[1]", '{"other": 1}'):
        await socket.wire.send_input({"type": "websocket.receive", "text": ignored})
    await socket.wire.send_input({"type": "websocket.receive", "text": nonsense})
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": NOT_UNDERSTOOD}
    await socket.close()


async def test_managers_hear_of_sessions_for_their_projects_alone(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_watch, "CHECK_SECONDS", 3600)
    member = await sync_to_async(make_user)()
    project = await sync_to_async(make_project)(member, managers=[user])
    socket = Socket(user)
    await socket.open()
    for session_id, owner_id, project_id in (("mine", user.pk, None), ("theirs", member.pk, project.pk)):
        await sync_to_async(notify.sessions_changed)([(session_id, owner_id, project_id)])
    await sync_to_async(notify.sessions_changed)([("private", member.pk, None)])
    assert sorted([(await socket.received())["session"] for _ in range(2)]) == ["mine", "theirs"]
    membership = await sync_to_async(project.memberships.get)(user=user)
    await sync_to_async(projects.remove_member)(membership, actor=member)
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": RECONNECT}
