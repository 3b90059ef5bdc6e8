"""From a ticket to an app and out again, over a real web process, its database and its Redis."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from email.message import Message
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import User
from endpoints import services
from endpoints.handoff import tickets
from endpoints.routing import revocations
from proxy.authorization.signing import Grant, digest
from sessions import notify
from sessions.models import Endpoint
from tests.app_servers import app_server
from tests.factories import make_endpoint
from tests.live import LiveServer, serving
from tests.wait import SECONDS, until
from tests.web import browser_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

LOGIN = digest("a login session")
GO_ON = threading.Event()


class Shown(BaseHTTPRequestHandler):
    """An app that shows the headers that reach it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the request's headers, or with a stream of two pieces, the second after GO_ON."""
        if self.path == "/stream":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
            GO_ON.wait(SECONDS)
            self.wfile.write(b"b")
            return
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def app_port() -> Iterator[int]:
    """The port of an app on this machine."""
    with app_server(Shown) as port:
        yield port


@pytest.fixture
def endpoint(transactional_db: None, app_port: int, settings: Settings) -> Endpoint:
    """A READY endpoint whose container is this machine."""
    settings.COMPUTE_SESSION_SUBNETS = ["127.0.0.0/8"]
    made = make_endpoint(port=app_port)
    made.session.address = "127.0.0.1"
    made.session.save()
    return made


@pytest.fixture
def web(endpoint: Endpoint, tmp_path: Path) -> Iterator[LiveServer]:
    """A web process on the host of the session."""
    host = endpoint.session.host
    assert host
    with serving(tmp_path / "web.log", COMPUTE_SESSION_SUBNETS="127.0.0.0/8", COMPUTE_HOST_NAME=host.name) as running:
        yield running


class Got(NamedTuple):
    """An answer, read."""

    status: int
    headers: Message
    body: bytes


def ask(web: LiveServer, host: str, path: str = "/", cookie: str = "") -> Got:
    """Navigate to a host of the web process."""
    with closing(HTTPConnection("127.0.0.1", urlsplit(web.url).port, timeout=SECONDS)) as connection:
        connection.request("GET", path, headers={"Host": host, "Sec-Fetch-Mode": "navigate", "Cookie": cookie})
        response = connection.getresponse()
        return Got(response.status, response.headers, response.read())


def is_out(web: LiveServer, host: str, path: str = "/", cookie: str = "") -> bool:
    """Return whether the app sends to the platform who comes so; a request that is cut off on its way is neither."""
    try:
        return ask(web, host, path, cookie).status == 303
    except (HTTPException, ConnectionError):
        return False


def redeemed(endpoint: Endpoint, user: User | None) -> tuple[Grant, str] | None:
    """Return what a new ticket is good for."""
    secret = tickets.issue(endpoint, user=user, login=LOGIN, state="s" * 64, path="/")
    return tickets.redeem(secret, endpoint.label, "s" * 64)


def test_a_ticket_opens_the_app_until_sign_out(web: LiveServer, endpoint: Endpoint) -> None:
    owner, host = endpoint.session.owner, f"{endpoint.label}.apps.localhost"
    sent_away = ask(web, host, "/lab")
    assert sent_away.status == 303
    asked = parse_qs(urlsplit(sent_away.headers["Location"]).query)
    state_cookie = sent_away.headers["Set-Cookie"].partition(";")[0]
    ticket = tickets.issue(endpoint, user=owner, login=LOGIN, state=asked["s"][0], path=asked["next"][0])
    assert ask(web, host, f"/.gp/callback?t={ticket}").status == 403
    arrived = ask(web, host, f"/.gp/callback?t={ticket}", state_cookie)
    assert (arrived.status, arrived.headers["Location"]) == (303, "/lab")
    cookie = arrived.headers["Set-Cookie"].partition(";")[0]
    assert ask(web, host, f"/.gp/callback?t={ticket}", state_cookie).status == 403
    shown = ask(web, host, "/lab", f"{cookie}; gp_session=x; own=1")
    assert (shown.status, b"Cookie: own=1" in shown.body, b"gp_" in shown.body) == (200, True, False)
    revocations.revoke_login(LOGIN, timezone.now())
    until(lambda: is_out(web, host, "/lab", cookie))


def cookies(*answers: Got) -> str:
    """Return what a browser would send back of these answers' cookies."""
    set_by = [value for answer in answers for value in answer.headers.get_all("Set-Cookie", [])]
    return "; ".join(value.partition(";")[0] for value in set_by)


def come_back(web: LiveServer, host: str, sent_away: Got, known_by: str) -> Got:
    """Follow the redirect from an app to the platform, known there by a cookie, and back to the app's callback."""
    given = ask(web, "localhost", sent_away.headers["Location"].removeprefix(web.url), known_by)
    assert (given.status, given.headers["Referrer-Policy"]) == (303, "no-referrer")
    callback = urlsplit(given.headers["Location"])
    assert callback.hostname == host
    return ask(web, host, f"{callback.path}?{callback.query}", cookies(sent_away))


def test_signing_out_ends_access_to_the_app(web: LiveServer, endpoint: Endpoint) -> None:
    owner, host = endpoint.session.owner, f"{endpoint.label}.apps.localhost"
    browser = browser_of(owner)
    arrived = come_back(web, host, ask(web, host, "/lab"), f"gp_session={browser.cookies['gp_session'].value}")
    assert (arrived.status, arrived.headers["Location"]) == (303, "/lab")
    cookie = cookies(arrived)
    assert ask(web, host, "/lab", cookie).status == 200
    browser.post("/accounts/sign-out/")
    until(lambda: is_out(web, host, "/lab", cookie))


def test_a_share_link_admits_until_it_is_revoked(web: LiveServer, endpoint: Endpoint) -> None:
    owner, host = endpoint.session.owner, f"{endpoint.label}.apps.localhost"
    link, secret = services.share(endpoint, expires=timezone.now() + timedelta(hours=1), actor=owner)
    stranger = Client()
    stranger.post(f"/apps/shared/{secret}")
    arrived = come_back(web, host, ask(web, host, "/"), f"gp_share={stranger.cookies['gp_share'].value}")
    cookie = cookies(arrived)
    assert ask(web, host, "/", cookie).status == 200
    other = make_endpoint(endpoint.session, app="p9090", port=9090)
    notify.routes_changed(other.session_id)
    until(lambda: ask(web, f"{other.label}.apps.localhost", "/").status == 303)
    assert ask(web, f"{other.label}.apps.localhost", "/", cookie).status == 303
    services.revoke(link, actor=owner)
    until(lambda: is_out(web, host, "/", cookie))


def test_a_public_app_needs_no_cookie(web: LiveServer, endpoint: Endpoint) -> None:
    owner, host = endpoint.session.owner, f"{endpoint.label}.apps.localhost"
    services.publish(endpoint, actor=owner)
    until(lambda: ask(web, host, "/").status == 200)
    services.unpublish(endpoint, actor=owner)
    until(lambda: is_out(web, host, "/"))


def test_the_platform_answers_at_the_same_address(web: LiveServer, endpoint: Endpoint) -> None:
    answer = ask(web, "localhost", "/accounts/sign-in/")
    assert (answer.status, b"<form" in answer.body) == (200, True)


@pytest.mark.parametrize("spoiled", ["over", "used", "other state", "other endpoint", "user disabled", "closed"])
def test_a_ticket_with_any_mismatch_is_refused(endpoint: Endpoint, spoiled: str) -> None:
    owner = endpoint.session.owner
    secret = tickets.issue(endpoint, user=owner, login=LOGIN, state="s" * 64, path="/")
    ticket = endpoint.tickets.get()
    assert ticket.digest == digest(secret)
    match spoiled:
        case "over":
            ticket.expires_at = timezone.now()
            ticket.save()
        case "used":
            assert tickets.redeem(secret, endpoint.label, "s" * 64)
        case "user disabled":
            owner.is_active = False
            owner.save()
        case "closed":
            Endpoint.objects.update(state="CLOSED")
    label = "other--s1" if spoiled == "other endpoint" else endpoint.label
    state = "t" * 64 if spoiled == "other state" else "s" * 64
    assert tickets.redeem(secret, label, state) is None


def test_a_share_link_ends_by_time_or_revocation(endpoint: Endpoint) -> None:
    link = endpoint.share_links.create(
        digest=LOGIN, created_by=endpoint.session.owner, expires_at=timezone.now() + timedelta(minutes=5)
    )

    found = redeemed(endpoint, None)
    assert found
    grant, path = found
    assert (grant.user, grant.login, path) == (0, LOGIN, "/")
    assert grant.expires_at == link.expires_at.timestamp()
    link.revoked_at = timezone.now()
    link.save()
    assert redeemed(endpoint, None) is None


def test_appproxy_connections_outlive_the_web_process(web: LiveServer, endpoint: Endpoint, tmp_path: Path) -> None:
    services.publish(endpoint, actor=endpoint.session.owner)
    host = f"{endpoint.label}.apps.localhost"
    with serving(tmp_path / "apps.log", role="appproxy", COMPUTE_SESSION_SUBNETS="127.0.0.0/8") as apps:
        assert ask(apps, "localhost", "/healthz").status == 421
        with closing(HTTPConnection("127.0.0.1", urlsplit(apps.url).port, timeout=SECONDS)) as connection:
            connection.request("GET", "/stream", headers={"Host": host})
            response = connection.getresponse()
            assert (response.status, response.read(1)) == (200, b"a")
            web.end()
            web.start()
            GO_ON.set()
            assert response.read() == b"b"
