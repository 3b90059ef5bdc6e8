"""The health page and the entry point of websockets."""

import re
import urllib.error
import urllib.request

import pytest
from django.test import Client
from pytest_django import Settings

from gpuplatform.asgi import platform_with
from operations.health import checks as health
from proxy.counters import LocalCounters
from tests.live import LiveServer
from tests.wait import SECONDS


@pytest.mark.django_db
def test_health_is_open_to_strangers_and_never_cached(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", SECONDS)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"database": "ok", "redis": "ok"})
    assert "no-store" in answer["Cache-Control"]
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_health_names_the_part_that_is_down(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", SECONDS)
    settings.CHANNEL_REDIS_URL = "unix:///nowhere/redis.sock"
    monkeypatch.setattr(health, "redis", health.Probe(health.redis_responds))
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"database": "ok", "redis": "unreachable"})


async def test_a_websocket_from_a_foreign_page_is_refused() -> None:
    scope = {"type": "websocket", "path": "/", "headers": [(b"origin", b"https://elsewhere.example")]}
    events = iter(["websocket.connect", "websocket.disconnect"])
    sent: list[str] = []

    async def receive() -> dict[str, str]:
        return {"type": next(events), "code": "1006"}

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])

    await platform_with(LocalCounters())(scope, receive, send)
    assert sent == ["websocket.close"]


@pytest.mark.django_db
def test_no_method_fails_on_the_api_documentation(client: Client) -> None:
    page = client.get("/api/docs/")
    assert page.status_code == 200
    assert b'<html lang="en"' in page.content
    assert b"SwaggerUIBundle" in client.get("/api/docs/?script=").content
    for method in ("options", "post", "put", "patch", "delete", "trace"):
        assert getattr(client, method)("/api/docs/").status_code == 405


@pytest.mark.loopback
@pytest.mark.django_db(transaction=True)
def test_the_log_has_times_and_no_share_links(server: LiveServer) -> None:
    """Django's warnings about forms quote the whole path, and that of a share link is its secret."""
    address = f"{server.url}/apps/shared/{'s' * 43}"
    request = urllib.request.Request(address, b"", {"Origin": "https://elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)
    text = server.log.read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ WARNING .*/apps/shared/\.\.\.$", text, re.MULTILINE)
    assert "ssss" not in text
