"""What is at the address of an app of a real container that starts, listens on loopback, has ended, or is closed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import docker
import pytest
import requests
from django.conf import settings
from playwright.sync_api import Browser, Page, expect

from endpoints import services
from resources.models import App
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session
from tests.fgpu_sessions import group_of, submit, wait_for
from tests.live import LiveServer, app_cookie, app_host
from tests.near_host import near_host
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PORT: Final = 8080
SERVE: Final = f"mkdir -p /tmp/s; cd /tmp/s; echo arrived >deep.html; exec python -m http.server {PORT} --bind"
LAST_WORDS: Final = "out of luck"


@pytest.fixture
def web(tmp_path: Path, transactional_db: None) -> Iterator[LiveServer]:
    with near_host(tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def session(web: LiveServer) -> Session:
    made = submit(group_of(settings.COMPUTE_HOST_NAME, 1), "0")
    wait_for(made, Status.RUNNING)
    return made


@pytest.fixture
def endpoint(session: Session) -> Endpoint:
    """A port of the session that was clicked; nothing listens there yet."""
    return services.open_app(session, f"p{PORT}", actor=session.owner).endpoint


def execute(session: Session, script: str, *, detach: bool = False) -> None:
    client = docker.APIClient(version="auto")
    made = client.exec_create(session.container_id, ["/bin/sh", "-c", script], user="work")
    client.exec_start(made["Id"], detach=detach)
    client.close()


def end_servers(session: Session) -> None:
    is_server = "grep -qsx python $p/comm && grep -qs http.server $p/cmdline"
    execute(session, f"for p in /proc/[0-9]*; do {is_server} && kill -9 ${{p#/proc/}}; done")


def ask(web: LiveServer, endpoint: Endpoint, path: str = "/deep.html") -> requests.Response:
    headers = {"Host": app_host(web, endpoint), "Cookie": app_cookie(endpoint)}
    return requests.get(f"{web.url}{path}", headers=headers, timeout=SECONDS)


def told(web: LiveServer, endpoint: Endpoint) -> dict[str, str]:
    """Return what the status says, as the page of an app asks for it."""
    return dict(json.loads(ask(web, endpoint, "/.gp/status?look").content))


def test_each_obstacle_is_told_from_the_others(web: LiveServer, session: Session, endpoint: Endpoint) -> None:
    until(lambda: ask(web, endpoint).status_code == 503)
    starting = ask(web, endpoint)
    assert starting.headers["Retry-After"] == "3"
    assert (starting.json()["state"], starting.json()["title"]) == ("starting", "Waiting for Port 8080")

    execute(session, f"{SERVE} 127.0.0.1", detach=True)
    until(lambda: told(web, endpoint)["state"] == "loopback")
    loopback = ask(web, endpoint)
    assert (loopback.status_code, "--host 0.0.0.0" in loopback.json()["detail"]) == (502, True)

    end_servers(session)
    execute(session, f"{SERVE} 0.0.0.0", detach=True)
    until(lambda: ask(web, endpoint).text == "arrived\n")

    end_servers(session)
    until(lambda: told(web, endpoint)["state"] == "exited")
    ended = ask(web, endpoint)
    assert (ended.status_code, ended.json()["detail"][:41]) == (502, "Nothing listens on port 8080 any more. St")

    services.close(endpoint, actor=session.owner)
    until(lambda: is_gone(web, endpoint))


def is_gone(web: LiveServer, endpoint: Endpoint) -> bool:
    """Return whether the app is closed; closing it cuts requests that are under way."""
    with suppress(requests.ConnectionError):
        return bool(ask(web, endpoint).status_code == requests.codes.gone)
    return False


def test_an_app_that_exited_shows_its_last_lines(web: LiveServer, session: Session) -> None:
    command = f"echo {LAST_WORDS}; {SERVE.replace('exec ', '')} 0.0.0.0; exit 3"
    App.objects.create(image=session.image, name="web", title="Web", port=PORT, command=command)
    endpoint = services.open_app(session, "web", actor=session.owner).endpoint
    until(lambda: ask(web, endpoint).text == "arrived\n")
    end_servers(session)
    until(lambda: ask(web, endpoint).status_code == 502 and told(web, endpoint)["state"] == "exited")
    found = ask(web, endpoint).json()
    assert (found["title"], found["detail"]) == ("Web has ended", "Web has ended with exit code 3.")
    assert LAST_WORDS in found["output"]


@pytest.fixture
def page(browser: Browser, web: LiveServer, endpoint: Endpoint) -> Iterator[Page]:
    """A page of a browser that may use the app; it may log no error."""
    errors: list[str] = []
    with browser.new_context() as context:
        name, _, value = app_cookie(endpoint).partition("=")
        context.add_cookies([{"name": name, "value": value, "url": f"http://{app_host(web, endpoint)}"}])
        made = context.new_page()
        made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        made.on("pageerror", lambda error: errors.append(str(error)))
        yield made
    assert errors == []


def test_a_page_waits_and_goes_on_at_its_address(
    page: Page, web: LiveServer, session: Session, endpoint: Endpoint
) -> None:
    until(lambda: ask(web, endpoint).status_code == 503)
    address = f"http://{app_host(web, endpoint)}/deep.html?x=1#here"
    page.goto(address)
    expect(page.get_by_role("heading", name="Waiting for Port 8080")).to_be_visible()
    execute(session, f"{SERVE} 127.0.0.1", detach=True)
    expect(page.get_by_role("heading", name="Port 8080 listens on 127.0.0.1 only")).to_be_visible()
    expect(page.get_by_text("--host 0.0.0.0")).to_be_visible()
    end_servers(session)
    execute(session, f"{SERVE} 0.0.0.0", detach=True)
    expect(page.get_by_text("arrived")).to_be_visible()
    assert page.url == address
    assert Endpoint.objects.get(pk=endpoint.pk).state == EndpointState.READY
