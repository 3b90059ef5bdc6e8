"""The health page and the entry point of websockets."""

import pytest
from django.test import Client
from pytest_django import Settings

from gpuplatform.asgi import application


@pytest.mark.django_db
def test_health_is_open_to_strangers_and_never_cached(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"database": "ok", "redis": "ok"})
    assert "no-store" in answer["Cache-Control"]
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_health_names_the_part_that_is_down(client: Client, settings: Settings) -> None:
    settings.CHANNEL_REDIS_URL = "unix:///nowhere/redis.sock"
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

    await application(scope, receive, send)
    assert sent == ["websocket.close"]
