"""Log lines as JSON: what a request, a task and a message about a session are found by."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from celery import shared_task
from celery.contrib.testing.worker import start_worker
from channels.testing import HttpCommunicator
from django.conf import settings as django_settings
from django.db import connections
from pytest_django import Settings

from accounts.credentials import tokens
from accounts.models import TokenScope, User
from gpuplatform.asgi import platform_with
from gpuplatform.celery import app
from operations.logs import lines as log_lines
from operations.logs.lines import JsonLines, NoteSession
from operations.logs.secrets import HideSecrets
from proxy.counters import LocalCounters
from tests.wait import SECONDS, until

QUEUE = "log-lines"
LOGGERS = ("somewhere", "greeting", "operations.metrics.requests")  # Celery's test worker replaces the root's handlers


class Lines(io.StringIO):
    """What was logged, as it would be on the console."""

    def read_all(self, **values: Any) -> list[dict[str, Any]]:
        """Return the lines that have these values."""
        lines = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in lines if values.items() <= line.items()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    written = Lines()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    for each in (NoteSession(), HideSecrets()):
        handler.addFilter(each)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
    yield written
    for name in LOGGERS:
        logging.getLogger(name).removeHandler(handler)
    log_lines.end()


@shared_task
def greet(session_id: str) -> None:
    logging.getLogger("greeting").info("hello")


def user_with_token() -> tuple[User, str]:
    user = User.objects.create_user("mina@example.org", "a long password")
    _row, token = tokens.create_token(user, "laptop", scope=TokenScope.READ.value, lifetime=timedelta(days=1))
    return user, token


async def get(path: str, headers: list[tuple[bytes, bytes]]) -> Any:
    """Return the response of the platform."""
    try:
        return await HttpCommunicator(platform_with(LocalCounters()), "GET", path, b"", headers).get_response(SECONDS)
    finally:
        await sync_to_async(connections.close_all)()  # in its thread, where the next test may have no database


def test_a_message_is_one_line_without_secrets(lines: Lines) -> None:
    logger = logging.getLogger("somewhere")
    logger.warning("session %s: ended\nby %s", "abc", "김")
    logger.warning("Forbidden: /apps/shared/%s", "s" * 43)
    try:
        raise ValueError("no such thing")
    except ValueError:
        logger.exception("session %s: /apps/shared/%s failed", "def", "s" * 43)
    about_session, shared, failed = lines.read_all()
    assert about_session["message"] == "session abc: ended\nby 김"
    assert (about_session["session_id"], about_session["level"]) == ("abc", "WARNING")
    assert shared["message"] == "Forbidden: /apps/shared/..."
    assert (failed["session_id"], "ValueError: no such thing" in failed["exception"]) == ("def", True)
    assert "sss" not in lines.getvalue()
    assert "session_id" not in shared


@pytest.mark.django_db(transaction=True)
def test_a_request_has_an_id_in_its_lines(lines: Lines, settings: Settings) -> None:
    settings.COMPUTE_LOG_REQUESTS = True
    user, token = user_with_token()
    session_id = "a" * 16
    for given, is_kept in ((b"from-the-proxy-1", True), (b"no id", False)):
        headers = [(b"authorization", b"Token " + token.encode()), (b"host", b"localhost"), (b"x-request-id", given)]
        answer = async_to_sync(get)(f"/api/v1/sessions/{session_id}/", headers)
        request_id = dict(answer["headers"])[b"x-request-id"].decode()
        assert (request_id == given.decode()) is is_kept
        (line,) = lines.read_all(logger="operations.metrics.requests", request_id=request_id)
        assert (line["user_id"], line["session_id"]) == (user.pk, session_id)
        assert (line["view"], line["status"], line["method"]) == ("session-detail", 404, "GET")


def test_a_task_has_the_id_of_its_request(lines: Lines) -> None:
    assert django_settings.CELERY_BROKER_URL.startswith("redis+socket://")
    log_lines.begin(request_id="request-1", user_id=7)
    app.send_task(greet.name, args=("abc",), queue=QUEUE)
    log_lines.end()
    app.send_task(greet.name, args=("def",), queue=QUEUE)
    with start_worker(
        app, pool="solo", perform_ping_check=False, shutdown_timeout=SECONDS, queues=[QUEUE], loglevel="WARNING"
    ):
        until(lambda: len(lines.read_all(logger="greeting")) == 2)
    first, second = lines.read_all(logger="greeting")
    assert (first["request_id"], first["task"], first["session_id"]) == ("request-1", greet.name, "abc")
    assert "user_id" not in first
    assert ("request_id" in second, second["session_id"]) == (False, "def")
