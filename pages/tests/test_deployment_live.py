"""The websocket of a deployment's page: who hears of its changes, and of those of its replicas."""

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from accounts.models import Membership, User
from deployments import services
from deployments.models import Deployment
from deployments.tests.making import make_deployment
from notifications import services as notices
from notifications.kinds import NoticeKind
from pages.deployments.live.consumers import DeploymentConsumer
from pages.deployments.live.routing import websocket_urlpatterns
from sessions import notify
from tests.factories import make_project, make_user
from tests.wait import SECONDS

pytestmark = pytest.mark.django_db(transaction=True)


class Tab:
    """A page that shows the deployment to a user."""

    def __init__(self, deployment: Deployment, user: User) -> None:
        client = Client()
        client.force_login(user, "django.contrib.auth.backends.ModelBackend")
        session = SessionStore(client.cookies[settings.SESSION_COOKIE_NAME].value)
        route = {"kwargs": {"deployment_id": deployment.pk}}
        scope = {"type": "websocket", "path": "/", "user": user, "session": session, "url_route": route}
        connect: Any = ApplicationCommunicator  # asgiref types none of it
        self.user, self.wire = user, connect(DeploymentConsumer.as_asgi(), scope)

    async def __aenter__(self) -> "Tab":
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(SECONDS))["type"] == "websocket.accept"
        assert "notices" in await self.received()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(SECONDS)

    async def received(self) -> Any:
        return json.loads((await self.wire.receive_output(SECONDS))["text"])

    async def hears_nothing_else(self) -> bool:
        """Return whether what the user is told next is the first that comes."""
        await sync_to_async(notices.tell)(self.user.pk, NoticeKind.FAILED, "event:1")
        return "notices" in await self.received()


@pytest.fixture
def deployment(transactional_db: None) -> Deployment:
    owner = make_user()
    return make_deployment(owner, project=make_project(owner))


@pytest.fixture
def member(deployment: Deployment) -> User:
    user = make_user()
    assert deployment.project is not None
    Membership.objects.create(project=deployment.project, user=user)
    return user


def change(deployment: Deployment) -> None:
    services.set_replicas(deployment, 3, actor=deployment.owner)


async def test_all_open_pages_hear_of_a_change(deployment: Deployment, member: User) -> None:
    tabs = [await sync_to_async(Tab)(deployment, user) for user in (deployment.owner, deployment.owner, member)]
    async with tabs[0], tabs[1], tabs[2]:
        await sync_to_async(change)(deployment)
        for tab in tabs:
            assert await tab.received() == {"session": deployment.pk}


async def test_strangers_hear_nothing_of_a_deployment(deployment: Deployment) -> None:
    stranger = await sync_to_async(make_user)()
    async with await sync_to_async(Tab)(deployment, stranger) as tab:
        await sync_to_async(change)(deployment)
        await sync_to_async(notify.sessions_changed)([("a-replica", deployment.owner_id, None)])
        assert await tab.hears_nothing_else()


async def test_replicas_are_told_of_to_who_may_change_it(deployment: Deployment, member: User) -> None:
    admin = await sync_to_async(make_user)(is_superuser=True)
    tabs = [await sync_to_async(Tab)(deployment, user) for user in (deployment.owner, admin, member)]
    async with tabs[0], tabs[1], tabs[2]:
        await sync_to_async(notify.sessions_changed)([("a-replica", deployment.owner_id, None)])
        assert [await tab.received() for tab in tabs[:2]] == [{"session": "a-replica"}] * 2
        assert await tabs[2].hears_nothing_else()


def test_an_id_that_is_no_text_has_no_socket() -> None:
    """PostgreSQL takes no NUL, which would end in a traceback."""
    (route,) = websocket_urlpatterns
    assert route.resolve("ws/deployments/abc234/")
    assert route.resolve("ws/deployments/\0/") is None
