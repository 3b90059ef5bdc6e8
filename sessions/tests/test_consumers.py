"""The socket that tells browsers what to fetch again."""

import json
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser

from accounts.models import User
from sessions import consumers
from sessions.consumers import SIGNED_OUT, SessionsConsumer
from sessions.notify import SUPERADMINS, user_group
from sessions.routing import websocket_urlpatterns
from tests.wait import SECONDS

USER, OTHER = User(pk=7), User(pk=8)
ADMIN = User(pk=9, is_superuser=True)


@pytest.fixture(autouse=True)
def _long_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one span hold all that a test tells, on a slow machine too."""
    monkeypatch.setattr(consumers, "COALESCE_SECONDS", 1.0)


class Socket:
    """A browser's end of the socket."""

    def __init__(self, user: User | AnonymousUser) -> None:
        connect: Any = ApplicationCommunicator  # asgiref types none of it
        self.wire = connect(SessionsConsumer.as_asgi(), {"type": "websocket", "path": "/ws/sessions/", "user": user})

    async def open(self) -> None:
        """Connect, which is always accepted."""
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(SECONDS))["type"] == "websocket.accept"

    async def told(self) -> Any:
        """Return the next message."""
        return json.loads((await self.wire.receive_output(SECONDS))["text"])

    async def close(self) -> None:
        """Disconnect and wait for the consumer to end."""
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(SECONDS)


async def tell(group: str, *sessions: str) -> None:
    for session in sessions:
        await get_channel_layer().group_send(group, {"type": "session.changed", "session": session})


async def test_nobody_is_closed_with_the_code_for_signing_in() -> None:
    socket = Socket(AnonymousUser())
    await socket.open()
    assert await socket.wire.receive_output(SECONDS) == {"type": "websocket.close", "code": SIGNED_OUT}


async def test_a_user_hears_of_their_own_sessions_alone() -> None:
    socket = Socket(USER)
    await socket.open()
    await tell(user_group(OTHER.pk), "theirs")
    await tell(SUPERADMINS, "theirs")
    await tell(user_group(USER.pk), "mine")
    assert await socket.told() == {"session": "mine"}
    await socket.close()


async def test_a_superadmin_hears_of_all_and_of_each_once() -> None:
    socket = Socket(ADMIN)
    await socket.open()
    await tell(user_group(ADMIN.pk), "mine")  # a change of one's own comes on both groups
    await tell(SUPERADMINS, "mine", "another")
    assert await socket.told() == {"session": "another"}
    assert await socket.told() == {"session": "mine"}
    await tell(SUPERADMINS, "next")
    assert await socket.told() == {"session": "next"}
    await socket.close()


async def test_a_burst_of_changes_is_told_once() -> None:
    socket = Socket(USER)
    await socket.open()
    await tell(user_group(USER.pk), *["mine"] * 20)
    assert await socket.told() == {"session": "mine"}
    await tell(user_group(USER.pk), "next")
    assert await socket.told() == {"session": "next"}
    await tell(user_group(USER.pk), "mine")
    assert await socket.told() == {"session": "mine"}
    await socket.close()


async def test_an_address_that_does_not_exist_is_refused_without_an_error() -> None:
    connect: Any = ApplicationCommunicator
    wire = connect(URLRouter(websocket_urlpatterns), {"type": "websocket", "path": "/ws/nowhere/", "user": USER})
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(SECONDS))["type"] == "websocket.close"
