"""The websocket of every page tells what its user is told."""

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from notifications import services
from notifications.announcements.services import GROUP
from notifications.kinds import NoticeKind
from notifications.models import Announcement
from notifications.page.consumers import LiveConsumer
from sessions.following.consumers import SIGNED_OUT
from tests.factories import make_user
from tests.wait import SECONDS

pytestmark = pytest.mark.django_db(transaction=True)


def wire_for(user: Any, cookie: str | None = None) -> Any:
    connect: Any = ApplicationCommunicator  # asgiref types none of it
    scope = {"type": "websocket", "path": "/ws/sessions/", "user": user, "session": SessionStore(cookie)}
    return connect(LiveConsumer.as_asgi(), scope)


async def received(wire: Any) -> Any:
    return json.loads((await wire.receive_output(SECONDS))["text"])


async def test_a_page_hears_of_its_users_notices_and_announcements() -> None:
    user, other = await sync_to_async(make_user)(), await sync_to_async(make_user)()
    client = Client()
    await sync_to_async(client.force_login)(user, "django.contrib.auth.backends.ModelBackend")
    wire = wire_for(user, client.cookies[settings.SESSION_COOKIE_NAME].value)
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(SECONDS))["type"] == "websocket.accept"
    assert await received(wire) == {"notices": {"unread": 0, "pending": 0}}
    await sync_to_async(services.tell)(other.pk, NoticeKind.FAILED, "event:1")
    await sync_to_async(services.tell)(user.pk, NoticeKind.FAILED, "event:1")
    assert await received(wire) == {"notices": {"unread": 1, "pending": 1}}
    await Announcement.objects.acreate(text="Hello")
    assert await received(wire) == {"announcements": True}
    await wire.send_input({"type": "websocket.disconnect", "code": 1000})
    await wire.wait(SECONDS)


async def test_what_is_announced_while_a_page_connects_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    user = await sync_to_async(make_user)()
    client = Client()
    await sync_to_async(client.force_login)(user, "django.contrib.auth.backends.ModelBackend")
    wire = wire_for(user, client.cookies[settings.SESSION_COOKIE_NAME].value)
    accept: Any = LiveConsumer.accept

    async def announce_and_accept(consumer: LiveConsumer) -> None:
        await consumer.channel_layer.group_send(GROUP, {"type": "announcements.changed"})
        await accept(consumer)

    monkeypatch.setattr(LiveConsumer, "accept", announce_and_accept)
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(SECONDS))["type"] == "websocket.accept"
    assert [await received(wire), await received(wire)] == [
        {"notices": {"unread": 0, "pending": 0}},
        {"announcements": True},
    ]
    await wire.send_input({"type": "websocket.disconnect", "code": 1000})
    await wire.wait(SECONDS)


async def test_nobody_hears_nothing() -> None:
    wire = wire_for(AnonymousUser())
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(SECONDS))["type"] == "websocket.accept"
    assert await wire.receive_output(SECONDS) == {"type": "websocket.close", "code": SIGNED_OUT}
