"""A platform on a bare IP address, in a real browser: an app opens at a port of its own, for its owner alone."""

from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import pytest
import requests
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings

from endpoints.routing import ports
from sessions.models import Endpoint, Session
from tests.app_servers import app_server
from tests.browser import allow_errors, signed_in
from tests.factories import make_app, make_endpoint, make_user
from tests.live import LiveServer, serving
from tests.ports import free_port
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

ATTACK: Final = """async target => {
  const failed = promise => promise.then(() => false, () => true);
  const socket = new Promise(done => {
    const asked = new WebSocket(target.replace("http", "ws") + "/socket");
    asked.onerror = () => done("refused");
    asked.onopen = () => done("open");
  });
  await fetch(target + "/changed", {method: "POST", mode: "no-cors", credentials: "include"});
  await fetch(target + "/read", {mode: "no-cors", credentials: "include"});
  document.cookie = "gp_session=mine; path=/";
  return {
    socket: await socket,
    isUnread: await failed(fetch(target + "/read", {credentials: "include"})),
    hasNoWorker: await failed(navigator.serviceWorker.register("/worker.js")),
    cookies: document.cookie,
  };
}"""


class Program(BaseHTTPRequestHandler):
    """A program in a session: it notes what reaches it, and tries to sign its visitors in as somebody else."""

    seen: Final[list[tuple[str, str]]] = []  # path and Cookie of each request

    def do_GET(self) -> None:
        """Answer with a page."""
        self.seen.append((self.path, self.headers.get("Cookie", "")))
        is_script = self.path.endswith(".js")
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if is_script else "text/html")
        self.send_header("Set-Cookie", "gp_session=somebody; Path=/")
        self.send_header("Set-Cookie", "own=1; Path=/")
        self.end_headers()
        self.wfile.write(b"" if is_script else b"<title>Lab</title><h1>The lab itself</h1>")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def program() -> Iterator[int]:
    """The port of the program, on this machine."""
    Program.seen.clear()
    with app_server(Program) as port:
        yield port


@pytest.fixture
def session(transactional_db: None, program: int, settings: Settings) -> Session:
    """A session whose container is this machine, with two apps that run: the lab, and the program's port."""
    settings.COMPUTE_SESSION_SUBNETS = ["127.0.0.0/8"]
    endpoint = make_endpoint(app="lab", title="The lab", port=program)
    make_endpoint(endpoint.session, app=f"p{program}", port=program)
    make_app(endpoint.session.image, name="lab", title="The lab", port=program, token_variable="")
    endpoint.session.address = "127.0.0.1"
    endpoint.session.save()
    return endpoint.session


@pytest.fixture
def web(session: Session, tmp_path: Path, settings: Settings) -> Iterator[LiveServer]:
    """A web process that has no domain for apps, and two ports."""
    assert session.host
    port, pool = free_port(), f"{free_port()}, {free_port()}"
    settings.COMPUTE_APPS_DOMAIN, settings.COMPUTE_APP_PORTS = "", pool
    with serving(
        tmp_path / "web.log",
        port=port,
        COMPUTE_APPS_DOMAIN="",
        COMPUTE_APP_PORTS=pool,
        COMPUTE_HOST_NAME=session.host.name,
        COMPUTE_PUBLIC_URL=f"http://127.0.0.1:{port}",
        COMPUTE_SESSION_SUBNETS="127.0.0.0/8",
    ) as running:
        yield running


def open_in_launcher(page: Page, session: Session, port: str = "") -> str:
    """Open the lab, or a port of the session, by a click; return its origin once a proxy leads there."""
    page.goto(f"/sessions/{session.pk}/apps/")
    expect(page.get_by_role("note")).to_contain_text("apart less well")
    page.get_by_label("Try preferred port").check()
    page.get_by_label("Preferred port", exact=True).fill("10200")  # none of the pool, of which the next page tells
    with page.expect_popup() as opened:
        if port:
            page.get_by_label("Open a port").fill(port)
            page.get_by_role("button", name="Open", exact=True).click()
        else:
            page.get_by_role("button", name="The lab").click()
    expect(opened.value.get_by_text("Port 10200 is not one of")).to_be_visible()
    opened.value.close()
    listen_port = Endpoint.objects.values_list("listen_port", flat=True).get(app=f"p{port}" if port else "lab")
    origin = f"http://127.0.0.1:{listen_port}"
    until(lambda: status_of(origin) == 401)
    return origin


def status_of(url: str) -> int:
    """Return the status with which the URL answers, 0 where nobody listens."""
    with suppress(requests.ConnectionError):
        return requests.get(url, timeout=SECONDS).status_code
    return 0


def test_an_app_opens_at_its_own_port(browser: Browser, web: LiveServer, session: Session, program: int) -> None:
    for port in ports.pool():
        until(lambda port=port: status_of(f"http://127.0.0.1:{port}") == 410)  # type: ignore[misc]
    with signed_in(browser, web, session.owner) as context:
        allow_errors(context, "/(changed|read)[) ]|blocked by CORS policy")  # by the app that attacks
        page = context.new_page()
        lab, other = open_in_launcher(page, session), open_in_launcher(page, session, str(program))
        page.goto(f"/sessions/{session.pk}/apps/lab/")
        expect(page.get_by_role("heading", name="The lab itself")).to_be_visible()
        assert page.url == f"{lab}/"

        page.goto(f"{other}/")
        expect(page.get_by_role("heading", name="The lab itself")).to_be_visible()
        came_to = page.evaluate(ATTACK, lab)
        assert came_to == {"socket": "refused", "isUnread": True, "hasNoWorker": True, "cookies": "own=1"}
        page.goto(f"/sessions/{session.pk}/apps/")
        expect(page.get_by_role("heading", name=f"Apps of {session.name}", level=2)).to_be_visible()

    assert {path for path, _ in Program.seen} <= {"/", "/favicon.ico"}
    assert not any("gp_" in cookies for _, cookies in Program.seen)
    Program.seen.clear()
    with signed_in(browser, web, make_user()) as context:
        allow_errors(context, "status of 404 .*/apps/authorize")
        page = context.new_page()
        answer = page.goto(f"{lab}/")
        assert answer
        assert (answer.status, page.url.startswith(f"{web.url}/apps/authorize")) == (404, True)
    assert Program.seen == []
