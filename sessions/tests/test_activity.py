"""Recording of a session's last use, and how often it is written."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from sessions.access import activity
from sessions.access.activity import record, used
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.tests.terminal_client import cookie_of, terminal
from tests.containers import lent_container
from tests.factories import make_host, run_session
from tests.tiny_image import ensure_tiny_image
from tests.wait import until


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
def test_activity_of_a_session_never_goes_back() -> None:
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
def test_a_database_outage_costs_only_one_record(
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
async def test_terminal_input_is_activity_but_opening_is_not() -> None:
    session = await sync_to_async(lambda: run_session(host=make_host(name=settings.COMPUTE_HOST_NAME)))()
    with lent_container(ensure_tiny_image()) as container:
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
