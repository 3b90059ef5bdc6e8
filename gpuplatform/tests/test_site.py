"""The health page and the entry point of websockets."""

import re
import time
import urllib.error
import urllib.request
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from gpuplatform import views
from gpuplatform.asgi import platform_with
from operations.health import checks as health
from operations.health.readiness import parts
from proxy.counters import LocalCounters
from resources import heartbeats
from resources.heartbeats import HeartbeatName
from resources.models import Host, HostStatus
from tests.factories import make_group, make_host, make_user
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
    monkeypatch.setattr(health, "redis", health.Probe(health.redis_responds, False))
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"database": "ok", "redis": "unreachable"})


@pytest.fixture
def ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Host:
    """An installation that works: its host, and heartbeats of its services."""
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", SECONDS)
    monkeypatch.setattr(views, "readiness", health.Probe(parts, {"": ""}, max_age_seconds=0))
    settings.COMPUTE_SSH_ADDRESS = "127.0.0.1:8022"
    heartbeats._noted.clear()
    host = make_host()
    for name in (HeartbeatName.SCHEDULER, HeartbeatName.BEAT, HeartbeatName.SSH, heartbeats.pass_of(host.group.pk)):
        heartbeats.note(name)
    return host


@pytest.mark.django_db(transaction=True)
def test_readiness_has_parts_for_superadmins_and_monitoring(client: Client, ready: Host, settings: Settings) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    assert "no-store" in answer["Cache-Control"]
    settings.COMPUTE_METRICS_TOKEN = "t" * 40
    names = {"database", "redis", "scheduler", "beat", "ssh", "passes", "hosts"}
    monitored = client.get("/readyz", HTTP_AUTHORIZATION=f"Bearer {'t' * 40}").json()
    assert monitored["parts"] == dict.fromkeys(names, "ok")
    client.force_login(make_user())
    assert "parts" not in client.get("/readyz").json()
    client.force_login(make_user(is_superuser=True))
    assert set(client.get("/readyz").json()["parts"]) == names


@pytest.mark.django_db(transaction=True)
def test_readiness_names_what_does_not_work(ready: Host) -> None:
    now = timezone.now()
    cache.set("heartbeat.beat", time.time() - 90, timeout=None)
    cache.delete("heartbeat.ssh")
    make_group()  # over which there was no pass
    Host.objects.update(heartbeat_at=now - timedelta(minutes=5))
    client = Client()
    client.force_login(make_user(is_superuser=True))
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    found = answer.json()["parts"]
    assert re.fullmatch(r"last heard of \d+ s ago", found["beat"])
    assert (found["ssh"], found["passes"], found["scheduler"]) == ("never heard of", "never heard of", "ok")
    assert re.fullmatch(r"last heard of 3\d\d s ago", found["hosts"])
    Host.objects.update(status=HostStatus.LOST)
    assert client.get("/readyz").json()["parts"]["hosts"] == "none is ready"


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
