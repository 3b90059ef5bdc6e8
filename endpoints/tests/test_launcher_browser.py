"""The launcher and the page of an app in a real browser: what opens by itself, by keyboard, and without a reload."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from accounts.models import User
from endpoints import services
from resources.models import App
from sessions.access import app_states
from sessions.models import Endpoint, EndpointState, Session
from tests.browser import hold_time, signed_in
from tests.factories import make_session, make_user, run_session
from tests.live import LiveServer, serving
from tests.ports import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

PORTS: Final = str(free_port()), str(free_port())


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The platform's web process, which has ports to give to apps."""
    with serving(tmp_path_factory.mktemp("live") / "server.log", COMPUTE_APP_PORTS=", ".join(PORTS)) as running:
        yield running


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def context(browser: Browser, server: LiveServer, owner: User) -> Iterator[BrowserContext]:
    """A browser in which the owner is signed in, with a stand-in for every app's origin; pages must log no error."""
    with signed_in(browser, server, owner) as made:
        made.route("http://*--*.apps.localhost:*/**", lambda route: route.fulfill(body="<h1>The app itself</h1>"))
        yield made


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def waiting(owner: User) -> Session:
    """A session that does not run yet, whose image offers one app."""
    session = make_session(owner=owner)
    App.objects.create(image=session.image, name="lab", title="The lab", port=8888, command="lab", start_path="/lab")
    return session


@pytest.fixture
def session(waiting: Session) -> Session:
    return run_session(waiting)


def open_launcher(page: Page, server: LiveServer, session: Session) -> None:
    page.goto(f"{server.url}/sessions/")
    icon = page.get_by_role("link", name=f"Apps of {session.name}")
    icon.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_the_launcher_opens_once_in_the_launching_tab(
    page: Page, context: BrowserContext, server: LiveServer, waiting: Session
) -> None:
    page.goto(f"{server.url}/sessions/#launched={waiting.pk}")
    expect(page.locator("#live-state")).to_contain_text("Live")
    other_tab = context.new_page()
    other_tab.goto(f"{server.url}/sessions/")
    assert page.url == f"{server.url}/sessions/"
    expect(page.get_by_role("dialog")).to_be_hidden()
    run_session(waiting)
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {waiting.name}")
    expect(page.get_by_role("button", name="The lab")).to_be_focused()
    expect(other_tab.locator(f"#apps-{waiting.pk}")).to_be_visible()
    expect(other_tab.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.reload()
    expect(page.locator("#live-state")).to_contain_text("Live")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_launcher_opens_for_an_already_running_session(page: Page, server: LiveServer, session: Session) -> None:
    page.goto(f"{server.url}/sessions/#launched={session.pk}")
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {session.name}")


def test_the_launcher_opens_by_an_unprocessed_link(page: Page, server: LiveServer, session: Session) -> None:
    page.goto(f"{server.url}/sessions/")
    expect(page.locator("#live-state")).to_contain_text("Live")
    page.evaluate(
        """id => {
            sessionStorage.setItem("gpuplatform.launched", id);
            const link = document.getElementById(`apps-${id}`);
            link.replaceWith(link.cloneNode(true)); // as a swap does, which settles later
            const detail = { elt: document.body, target: document.body };
            document.body.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true, detail })); // of another
        }""",
        session.pk,
    )
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {session.name}")
    assert page.url == f"{server.url}/sessions/"


def test_a_launcher_without_answer_opens_with_the_next_update(
    page: Page, server: LiveServer, session: Session, owner: User
) -> None:
    requests: list[str] = []

    def answer(route: Route) -> None:
        requests.append(route.request.url)
        if len(requests) == 1:
            route.fulfill(status=204)  # nothing to show, and no error
        else:
            route.fallback()

    page.route("**/sessions/*/apps/", answer)
    with page.expect_response(lambda response: response.status == 204):
        page.goto(f"{server.url}/sessions/#launched={session.pk}")
    run_session(owner=owner)
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {session.name}")


def test_enter_opens_the_port_in_a_new_window(
    page: Page, context: BrowserContext, server: LiveServer, session: Session
) -> None:
    open_launcher(page, server, session)
    with context.expect_page() as opening:
        page.get_by_label("Open a port").fill("8080")
        page.keyboard.press("Enter")
    expect(opening.value.get_by_role("heading", name="Port 8080")).to_be_visible()
    assert opening.value.evaluate("window.opener") is None
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert list(Endpoint.objects.values_list("app", flat=True)) == ["p8080"]


def test_a_preferred_port_is_used_only_when_written(
    page: Page, context: BrowserContext, server: LiveServer, session: Session
) -> None:
    open_launcher(page, server, session)
    box, number = (
        page.get_by_role("checkbox", name="Try preferred port"),
        page.get_by_label("Preferred port", exact=True),
    )
    number.fill(PORTS[0])
    expect(box).to_be_checked()
    box.uncheck()
    expect(number).to_have_value("")
    box.check()
    expect(number).to_be_focused()
    number.fill(PORTS[1])
    with context.expect_page() as opening:
        page.get_by_role("button", name="The lab").click()
    expect(opening.value.get_by_role("heading", name="The lab")).to_be_visible()
    assert Endpoint.objects.get().listen_port == int(PORTS[1])


def test_an_invalid_port_is_refused_in_the_dialog(
    page: Page, context: BrowserContext, server: LiveServer, session: Session
) -> None:
    open_launcher(page, server, session)
    field = page.get_by_label("Open a port")
    for typed in ("", "80", "abc"):
        field.fill(typed)
        field.press("Enter")
        expect(page.locator("#id_port:invalid")).to_be_focused()
        expect(page.get_by_role("dialog")).to_be_visible()
    with context.expect_page() as opening:
        page.get_by_role("button", name="The lab").click()
    expect(opening.value.get_by_role("heading", name="The lab")).to_be_visible()
    assert len(context.pages) == 2


def test_a_new_share_link_is_focused_and_copied(
    page: Page, context: BrowserContext, server: LiveServer, session: Session
) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.clock.install()
    services.open_app(session, "lab", actor=session.owner)
    open_launcher(page, server, session)
    page.get_by_text("Share by link").click()
    page.get_by_label("For whom").press("Enter")
    expect(page.get_by_label("Share link")).to_be_focused()
    link = page.get_by_label("Share link").input_value()
    hold_time(page)
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == link


def test_the_new_window_becomes_the_app(
    page: Page, context: BrowserContext, server: LiveServer, session: Session
) -> None:
    open_launcher(page, server, session)
    with context.expect_page() as opening:
        page.get_by_role("button", name="The lab").press("Enter")
    window = opening.value
    expect(window.get_by_role("heading", name="The lab")).to_be_visible()
    expect(window.locator("#live-state")).to_contain_text("Live")
    endpoint = Endpoint.objects.select_related("session").get()
    app_states.report(endpoint, EndpointState.STARTING, "Starting the lab …", "reading")
    expect(window.get_by_role("status").filter(has_text="Starting the lab")).to_be_visible()
    app_states.report(endpoint, EndpointState.FAILED, "It ended with exit code 1.", "no module named lab")
    expect(window.get_by_role("alert")).to_contain_text("It ended with exit code 1.")
    expect(window.get_by_text("no module named lab")).to_be_visible()
    window.get_by_role("button", name="Try again").click()
    expect(window.get_by_role("alert")).to_have_count(0)
    expect(window.locator("#live-state")).to_contain_text("Live")
    app_states.report(endpoint, EndpointState.READY)
    expect(window.get_by_role("heading", name="The app itself")).to_be_visible()
    assert window.url.startswith(f"http://lab--{session.pk}.apps.localhost:")
    assert window.url.endswith("/lab")
    window.go_back()
    expect(window.get_by_role("heading", name=session.name)).to_be_visible()
    assert window.url == f"{server.url}/sessions/{session.pk}/"


def test_back_from_an_app_leads_to_the_session(page: Page, server: LiveServer, session: Session) -> None:
    services.open_app(session, "lab", actor=session.owner)
    page.goto(f"{server.url}/sessions/")
    page.goto(f"{server.url}/sessions/{session.pk}/")
    with page.expect_navigation():
        page.evaluate("() => { location.assign('apps/lab/'); }")
    expect(page.locator("#live-state")).to_contain_text("Live")
    app_states.report(Endpoint.objects.select_related("session").get(), EndpointState.READY)
    expect(page.get_by_role("heading", name="The app itself")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name=session.name)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


def test_an_app_opens_without_scripts(browser: Browser, server: LiveServer, owner: User, session: Session) -> None:
    with signed_in(browser, server, owner, java_script_enabled=False) as plain:
        page = plain.new_page()
        page.goto(f"{server.url}/sessions/")
        page.get_by_role("link", name=f"Apps of {session.name}").click()
        with plain.expect_page() as opening:
            page.get_by_role("button", name="The lab").click()
        expect(opening.value.get_by_role("heading", name="The lab")).to_be_visible()
        app_states.report(Endpoint.objects.select_related("session").get(), EndpointState.READY)
        opening.value.get_by_role("link", name="Look again").click()
        expect(opening.value).to_have_url(f"http://lab--{session.pk}.apps.localhost:{server.port}/lab")


def test_a_public_app_is_made_private_in_the_dialog(page: Page, server: LiveServer, session: Session) -> None:
    services.publish(services.open_app(session, "lab", actor=session.owner).endpoint, actor=session.owner)
    open_launcher(page, server, session)
    page.get_by_role("button", name="Make private").click()
    expect(page.get_by_role("button", name="Make private")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not Endpoint.objects.get().is_public
