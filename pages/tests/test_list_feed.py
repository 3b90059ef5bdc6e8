"""What open lists are sent: rows rendered once for all of them, counts, live use and resources."""

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from pages.session_list.live import feed, rendering
from pages.session_list.live.consumers import SessionListConsumer
from pages.session_list.live.feed import Audience, ListFeed, change_messages
from pages.session_list.live.resources_feed import resource_messages
from pages.session_list.occupancy import change_version, version_text
from scheduler.advice import own_sessions
from sessions.ending import services as ending
from sessions.lifecycle import Reason, Status
from sessions.models import SessionUsage
from sessions.notify import ALL
from tests.factories import make_host, make_policy, make_session, make_user, run_session
from tests.wait import SECONDS

COLUMNS = ("resources", "owner")
EVERYBODY = Audience(user_id=0, sees_all=True, columns=COLUMNS, language="en")


@pytest.mark.django_db
def test_a_row_is_rendered_once_for_all_audiences() -> None:
    session = run_session()
    before = rendering.rendered_count()
    mine = Audience(user_id=session.owner_id, sees_all=False, columns=COLUMNS, language="en")
    messages = change_messages({EVERYBODY: {session.pk}, mine: {session.pk}})
    assert rendering.rendered_count() == before + 1
    for text in messages.values():
        (row,) = json.loads(text)["rows"]
        assert (row["id"], row["tab"]) == (session.pk, "running")
        assert session.name in row["html"]


@pytest.mark.django_db
def test_undo_is_sent_to_who_may() -> None:
    session, admin = run_session(), make_user(is_superuser=True)
    viewers = {
        pk: Audience(user_id=pk, sees_all=pk == admin.pk, columns=(), language="en")
        for pk in (session.owner_id, admin.pk)
    }
    for actor in (session.owner, admin):
        ending.request_end(session, actor=actor)
        messages = change_messages({viewer: [session.pk] for viewer in viewers.values()})
        shown = {pk for pk, viewer in viewers.items() if f"undo-{session.pk}" in messages[viewer]}
        assert shown == {actor.pk, admin.pk}
        ending.undo([session.pk], actor=admin)


@pytest.mark.django_db
def test_counts_are_the_audience_s_own() -> None:
    session = run_session()
    make_session()
    mine = Audience(user_id=session.owner_id, sees_all=False, columns=(), language="en")
    messages = {
        who: json.loads(text) for who, text in change_messages({EVERYBODY: {session.pk}, mine: {session.pk}}).items()
    }
    none = {"active": 0, "running": 0, "waiting": 0, "parked": 0, "finished": 0, "others": 0}
    assert messages[EVERYBODY]["counts"] == none | {"active": 2, "running": 1, "waiting": 1}
    assert messages[mine]["counts"] == none | {"active": 1, "running": 1}


@pytest.mark.django_db
def test_superadmins_are_sent_help_for_their_own_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_sessions, "MAX_SECONDS", SECONDS)
    running = [run_session(host=make_host(gpus=1), owner=make_user(is_superuser=yes), fgpu=2000) for yes in (1, 0)]
    waiting = [make_session(resource_group=each.resource_group, owner=each.owner, fgpu=2000).pk for each in running]
    admin, other = (each.owner_id for each in running)
    viewers = [Audience(user_id=pk, sees_all=pk == admin, columns=(), language="en") for pk in (admin, other)]
    messages = change_messages(dict.fromkeys(viewers, waiting))
    for viewer, pk in zip(viewers, waiting, strict=True):
        helped = [row["id"] for row in json.loads(messages[viewer])["rows"] if "Waits for your own" in row["html"]]
        assert helped == [pk]


@pytest.mark.django_db
def test_changes_take_a_constant_number_of_queries() -> None:
    host = make_host(gpus=4, cpu=64)
    ids = [run_session(host=host, fgpu=100).pk for _ in range(6)]

    def count(chosen: list[str]) -> int:
        with CaptureQueriesContext(connection) as captured:
            change_messages({EVERYBODY: chosen})
        return len(captured)

    assert count(ids[:1]) == count(ids) <= 5


@pytest.mark.django_db
def test_resources_follow_each_user_s_share() -> None:
    owner = make_user(policy=make_policy(fgpu=3000))
    host = make_host(gpus=1)
    run_session(owner=owner, host=host, fgpu=500)
    run_session(host=host, fgpu=1000)
    found = resource_messages({(owner.pk, host.group_id, "en"), (owner.pk, host.group_id, "ko")})
    told = json.loads(found[owner.pk, host.group_id, "en"])["resources"]
    assert told["free"] == "0.5"
    assert told["bars"]["fgpu"] == [[500, 3000, "0.5 of 3 fGPU"], *[[500, 1000, "0.5 of 1 fGPU"]] * 2]
    ((mine, others, text, _),) = told["blocks"].values()
    assert (mine, others, text) == ("25.00", "50.00", "0.5 free")


async def test_requests_of_one_moment_share_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def messages(changed: Any) -> dict[Audience, str]:
        read.append({audience: set(ids) for audience, ids in changed.items()})
        return dict.fromkeys(changed, "{}")

    monkeypatch.setattr(feed, "change_messages", messages)
    shared = ListFeed()
    await asyncio.gather(*(shared.changes([f"s{number % 3}"], EVERYBODY) for number in range(500)))
    assert read == [{EVERYBODY: {"s0", "s1", "s2"}}]


class Browser:
    """A browser's end of the socket of a list."""

    def __init__(self, user: User) -> None:
        self.user = user

    async def open(self) -> None:
        """Sign in and connect."""
        client = Client()
        await sync_to_async(client.force_login)(self.user, "django.contrib.auth.backends.ModelBackend")
        login = SessionStore(client.cookies[settings.SESSION_COOKIE_NAME].value)
        make: Any = ApplicationCommunicator  # asgiref types none of it
        scope = {"type": "websocket", "path": "/ws/sessions/list/", "user": self.user, "session": login}
        self.wire = make(SessionListConsumer.as_asgi(), scope)
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(SECONDS))["type"] == "websocket.accept"

    async def send(self, **content: Any) -> None:
        """Send a message."""
        await self.wire.send_input({"type": "websocket.receive", "text": json.dumps(content)})

    async def told(self, *keys: str) -> dict[str, Any]:
        """Return what the next messages say until they have said all of this."""
        found: dict[str, Any] = {}
        while not found.keys() >= set(keys):
            found |= json.loads((await self.wire.receive_output(SECONDS))["text"])
        return found

    async def close(self) -> None:
        """Disconnect and wait for the consumer to end."""
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(SECONDS)


@pytest.mark.django_db(transaction=True)
async def test_an_open_list_is_sent_rows_use_and_resources() -> None:
    owner = await sync_to_async(make_user)()
    session = await sync_to_async(run_session)(owner=owner)
    foreign = await sync_to_async(run_session)()
    for each in (session, foreign):
        await sync_to_async(SessionUsage.objects.create)(session=each, cpu_milli=250)
    version = version_text(await sync_to_async(change_version)())
    browser = Browser(owner)
    await browser.open()
    try:
        shown = {
            "tab": "running",
            "group": session.resource_group_id,
            "ids": [session.pk, foreign.pk],
            "version": version,
        }
        await browser.send(watch=shown)
        told = await browser.told("use", "resources")
        assert told["use"] == {session.pk: [250, None, None, None]}  # not that of another user's session
        assert told["resources"]["group"] == session.resource_group_id
        await sync_to_async(session.move_to)(Status.ERROR, Reason.OUT_OF_MEMORY)
        (row,) = (await browser.told("rows"))["rows"]
        assert (row["id"], row["tab"]) == (session.pk, "others")
    finally:
        await browser.close()


@pytest.mark.django_db(transaction=True)
async def test_a_list_that_is_out_of_date_is_fetched_again() -> None:
    owner = await sync_to_async(make_user)()
    browser = Browser(owner)
    await browser.open()
    try:
        await browser.send(watch={"tab": "running", "version": "an older one"})
        assert (await browser.told("session"))["session"] == ALL
        await browser.send(watch={"tab": 7, "ids": "x", "group": "y", "language": None})  # nonsense is the default
        session = await sync_to_async(make_session)(owner=owner)
        await sync_to_async(session.move_to)(Status.CANCELLED, Reason.USER_REQUEST)
        assert (await browser.told("rows"))["counts"]["finished"] == 1
    finally:
        await browser.close()
