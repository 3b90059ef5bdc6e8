"""Apps where there is no domain for them: each needs a port of the platform's own host name, and is reached there."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from endpoints import services
from endpoints.routing import ports
from gpuplatform.serving.same_origin import SameOrigin
from hostworker.containers.app_environment import variables
from proxy.authorization.signing import digest
from proxy.http.asgi import Receive, Scope, Send
from sessions.access import app_addresses, app_states
from sessions.errors import RejectedError
from sessions.models import Endpoint, EndpointState, Session
from tests.api import client_of
from tests.factories import make_app, make_endpoint, make_user, run_reachable_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db
PLATFORM = "http://10.0.0.5:8000"
APP = "http://10.0.0.5:10200"


@pytest.fixture(autouse=True)
def _by_port(settings: Settings) -> None:
    settings.COMPUTE_APPS_DOMAIN = ""
    settings.COMPUTE_PUBLIC_URL = PLATFORM
    settings.COMPUTE_APP_PORTS = "10200-10201"
    settings.ALLOWED_HOSTS = ["10.0.0.5", "testserver"]


@pytest.fixture
def session() -> Session:
    session = run_reachable_session()
    make_app(session.image, start_path="/lab")
    return session


def opened(session: Session, app: str = "jupyter", preferred_port: int | None = None) -> Endpoint:
    return services.open_app(session, app, actor=session.owner, preferred_port=preferred_port).endpoint


def test_an_app_keeps_its_port_until_closed(session: Session) -> None:
    first, second = opened(session, "jupyter"), opened(session, "p8080")
    assert {first.listen_port, second.listen_port} == {10200, 10201}
    app_states.report(first, EndpointState.FAILED)
    assert opened(session, "jupyter").listen_port == first.listen_port
    assert app_addresses.first_page(first) == f"http://10.0.0.5:{first.listen_port}/lab"
    services.close(first, actor=session.owner)
    first.refresh_from_db()
    assert app_addresses.first_page(first) == ""
    assert opened(session, "p9090").listen_port not in (None, second.listen_port)


def test_the_preferred_port_is_assigned(session: Session) -> None:
    assert opened(session, preferred_port=10201).listen_port == 10201
    assert opened(session, preferred_port=10200).listen_port == 10200


def test_without_a_free_port_opening_is_refused(session: Session) -> None:
    for port in (10200, 10201):
        make_endpoint(listen_port=port)
    with pytest.raises(RejectedError, match="All ports for apps are taken"):
        opened(session)
    assert not Endpoint.objects.filter(session=session).exists()
    answer = browser_of(session.owner).post(reverse("endpoints:apps", args=[session.pk]), {"app": "jupyter"})
    assert (answer.status_code, "All ports for apps are taken" in answer.content.decode()) == (422, True)
    told = client_of(session.owner).post(f"/api/v1/sessions/{session.pk}/apps/jupyter/")
    assert (told.status_code, "All ports" in str(told.json())) == (400, True)


def test_another_users_old_port_is_assigned_last(session: Session) -> None:
    stranger = run_reachable_session()
    first = opened(stranger, "p8080", preferred_port=10201)
    services.close(first, actor=stranger.owner)
    mine, note = services.open_app(session, "jupyter", actor=session.owner, preferred_port=10201)
    assert (mine.listen_port, "10201 is taken" in note) == (10200, True)
    assert opened(session, "p8080").listen_port == 10201
    services.close(mine, actor=session.owner)
    assert opened(session, "p9090").listen_port == 10200


def test_reopening_assigns_a_port_after_the_domain_is_gone(session: Session) -> None:
    endpoint = make_endpoint(session)
    browser = browser_of(session.owner)
    page = reverse("endpoints:app", args=[session.pk, "p8080"])
    asked = {"h": endpoint.label, "s": digest("what the browser keeps")}
    assert browser.get("/apps/authorize", asked).headers["Location"] == page
    assert "Try again" in text_of(browser, page)
    assert "It needs a port: open it again." in text_of(browser, reverse("endpoints:apps", args=[session.pk]))
    browser.post(page)
    endpoint.refresh_from_db()
    answer = browser.get(page)
    assert answer.headers["Location"] == f"http://10.0.0.5:{endpoint.listen_port}/"


def test_a_ticket_goes_to_the_apps_port_for_its_owner(session: Session) -> None:
    endpoint = make_endpoint(session, listen_port=10200)
    asked = {"h": endpoint.label, "s": digest("what the browser keeps")}
    answer = browser_of(session.owner).get("/apps/authorize", asked)
    assert answer.headers["Location"].startswith(f"{APP}/.gp/callback?t=")
    assert browser_of(make_user()).get("/apps/authorize", asked).status_code == 404


def test_the_api_shows_the_port(session: Session) -> None:
    answer = client_of(session.owner).post(f"/api/v1/sessions/{session.pk}/apps/jupyter/", {"preferred_port": 10200})
    shown = answer.json()
    assert (shown["url"], shown["port_url"], shown["port"]) == (f"{APP}/lab", f"{APP}/lab", 10200)


def test_pages_warn_of_weaker_isolation_by_port(session: Session, settings: Settings) -> None:
    endpoint = make_endpoint(session, listen_port=10200)
    owner = browser_of(session.owner)
    link = services.share(endpoint, expires=timezone.now() + timedelta(hours=1), actor=session.owner)
    pages = [(owner, reverse("endpoints:apps", args=[session.pk])), (Client(), f"/apps/shared/{link.secret}")]
    for browser, path in pages:
        assert "apart less well" in text_of(browser, path)
    assert text_of(*pages[0]).count(f'data-copy="{APP}/') == 1
    settings.COMPUTE_APPS_DOMAIN = "apps.localhost"
    for browser, path in pages:
        assert "apart less well" not in text_of(browser, path)


def test_an_apps_page_cannot_post_to_the_platform(session: Session) -> None:
    browser = Client(enforce_csrf_checks=True, HTTP_HOST="10.0.0.5:8000")
    browser.force_login(session.owner, backend="django.contrib.auth.backends.ModelBackend")
    path = reverse("endpoints:apps", args=[session.pk])
    token = browser.get(path).context["csrf_token"]
    form = {"app": "jupyter", "csrfmiddlewaretoken": str(token)}
    for origin in (APP, "null", "http://10.0.0.5"):
        assert browser.post(path, form, headers={"Origin": origin}).status_code == 403
    assert browser.post(path, form, headers={"Origin": PLATFORM}).status_code == 302


def test_an_apps_page_cannot_open_platform_websockets() -> None:
    assert [handshake_is_passed_on(origin) for origin in (PLATFORM, APP, "http://10.0.0.5", "null")] == [
        True,
        False,
        False,
        False,
    ]


def handshake_is_passed_on(origin: str) -> bool:
    """Return whether a page of this origin gets as far as the platform's own websockets."""
    passed = []
    events: list[dict[str, Any]] = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1006}]

    async def platform(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope)

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    async def send(message: Any) -> None:
        assert message["type"] == "websocket.close"

    headers = [(b"host", b"10.0.0.5:8000"), (b"origin", origin.encode())]
    scope = {"type": "websocket", "path": "/", "headers": headers}
    async_to_sync(SameOrigin(platform))(scope, receive, send)
    return bool(passed)


def test_sessions_environment_names_the_platforms_host() -> None:
    told = variables()
    assert {"10.0.0.5", "10.0.0.5:*"} <= set(told["MLFLOW_SERVER_ALLOWED_HOSTS"].split(","))
    assert told["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"] == "http://10.0.0.5,http://10.0.0.5:*"


def test_proxies_hold_all_ports_of_the_pool(settings: Settings) -> None:
    assert ports.held() == [10200, 10201]
    settings.COMPUTE_APPS_DOMAIN = "apps.localhost"
    assert ports.held() == []


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("10200-10299", ["compute.W001"]),
        ("", ["compute.W001", "compute.E006"]),
        ("7990-8010", ["compute.W001", "compute.E007"]),
        ("8022", ["compute.W001", "compute.E007"]),
        ("x", ["compute.E001"]),
    ],
)
def test_the_operator_is_warned_about_missing_settings(settings: Settings, pool: str, expected: list[str]) -> None:
    settings.COMPUTE_APP_PORTS = pool
    settings.COMPUTE_SSH_ADDRESS = "127.0.0.1:8022"
    found = [message for message in run_checks() if (message.id or "").startswith("compute.")]
    assert [message.id for message in found] == expected
    assert all(message.hint for message in found)
