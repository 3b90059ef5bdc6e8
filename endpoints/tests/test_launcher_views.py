"""The launcher and the pages of apps: who may, what they show, and what they do."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from endpoints import services
from endpoints.routing import routes
from resources.models import App
from sessions.access import app_addresses, app_states
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Endpoint, EndpointState, Session, ShareLink
from sessions.parking import services as parking
from tests.factories import make_policy, make_user, run_session
from tests.ports import free_port
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def session() -> Session:
    """A running session whose image offers an app that is started, and one that is not."""
    running = run_session()
    App.objects.create(image=running.image, name="lab", title="The lab", port=8888, command="lab", start_path="/lab")
    App.objects.create(image=running.image, name="hand", title="By hand", port=9000)
    return running


@pytest.fixture
def browser(session: Session) -> Client:
    return browser_of(session.owner)


def path(session: Session, part: str = "") -> str:
    return f"/sessions/{session.pk}/apps/{part}"


def opened(session: Session, app: str = "lab", **changes: object) -> Endpoint:
    endpoint = services.open_app(session, app, actor=session.owner).endpoint
    Endpoint.objects.filter(pk=endpoint.pk).update(**changes)
    endpoint.refresh_from_db()
    return endpoint


def launcher(session: Session, browser: Client, **fields: str) -> str:
    return browser.post(path(session), fields).headers["Location"]


PARTS = ["", "found-ports/", "lab/", "lab/close/", "lab/share/", "lab/unpublish/", "links/1/revoke/"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("method", ["get", "post"])
def test_launcher_pages_need_the_owners_log_in(client: Client, session: Session, method: str, part: str) -> None:
    opened(session)
    refused = getattr(browser_of(make_user()), method)(path(session, part))
    assert refused.status_code in (404, 405)
    response = getattr(client, method)(path(session, part))
    assert response.status_code == 405 or response.headers["Location"].startswith("/accounts/sign-in/")
    assert Endpoint.objects.get().state == EndpointState.STARTING


def test_the_dialog_offers_terminal_apps_and_port(session: Session, browser: Client) -> None:
    page = text_of(browser, path(session), **HTMX)
    assert "<html" not in page
    for words in ("Terminal", "The lab", "By hand", "Open a port"):
        assert words in page
    assert "<html" in text_of(browser, path(session))


def test_a_tile_says_what_its_app_shows(session: Session, browser: Client) -> None:
    App.objects.filter(name="lab").update(hint="Reads ~/logs & more")
    page = text_of(browser, path(session), **HTMX)
    assert '<small class="app-hint">Reads ~/logs &amp; more</small>' in page
    assert page.count("app-hint") == 2  # the terminal's, and no empty one


def test_the_address_of_an_opened_app_can_be_copied(session: Session, browser: Client) -> None:
    endpoint = opened(session)
    assert f'data-copy="{app_addresses.first_page(endpoint)}"' in text_of(browser, path(session), **HTMX)


def test_a_running_session_links_to_its_apps(session: Session, browser: Client) -> None:
    for page in ("/sessions/", f"/sessions/{session.pk}/"):
        assert f'href="{path(session)}"' in text_of(browser, page)


def test_an_open_dialog_follows_its_session_into_parking(session: Session, browser: Client) -> None:
    parking.park(session, actor=session.owner)
    session.move_to(Status.PARKED, Reason.PARKED)
    answer = browser.get(path(session, "found-ports/"), headers=HTMX)  # as it asks every few seconds
    assert (answer["HX-Retarget"], answer["HX-Reswap"]) == (".apps-dialog", "outerHTML")
    page = answer.content.decode()
    assert "nothing can be opened in it" in page
    assert f"/sessions/{session.pk}/resume/" in page
    assert f"/sessions/{session.pk}/resume/" in text_of(browser, path(session, "lab/"))


def test_a_waiting_session_offers_no_apps(session: Session, browser: Client) -> None:
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert "app-tile" not in text_of(browser, path(session))
    assert "The lab" in text_of(browser, path(session, "lab/"))
    response = browser.post(path(session), {"app": "lab"})
    assert response.status_code == 422
    assert not Endpoint.objects.exists()


def test_opening_an_app_redirects_to_its_page(session: Session, browser: Client) -> None:
    assert launcher(session, browser, app="lab") == path(session, "lab/")
    endpoint = Endpoint.objects.get()
    assert (endpoint.app, endpoint.port, endpoint.state, endpoint.opened_by) == (
        *("lab", 8888, EndpointState.STARTING),
        session.owner,
    )
    assert not endpoint.is_public


def test_a_port_is_opened_by_its_number(session: Session, browser: Client) -> None:
    assert launcher(session, browser, app="port", port="8080") == path(session, "p8080/")
    assert Endpoint.objects.get().port == 8080


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"app": "port", "port": ""}, "Write a port between 1024 and 65535."),
        ({"app": "port", "port": "80"}, "Write a port between 1024 and 65535."),
        ({"app": "port", "port": "eighty"}, "Write a port between 1024 and 65535."),
        ({"app": "none"}, "This image offers"),
        ({"app": "../x"}, "Choose an app."),
        ({}, "Choose an app."),
        ({"app": "lab", "use_preferred": "on", "preferred": "x"}, "Write a port between 1024 and 65535."),
        ({"app": "lab", "use_preferred": "on"}, "Write a port between 1024 and 65535."),
        ({"app": "lab", "preferred": "x"}, "Write a port between 1024 and 65535."),
    ],
)
def test_what_cannot_be_opened_is_reported(
    session: Session, browser: Client, settings: LazySettings, fields: dict[str, str], words: str
) -> None:
    settings.COMPUTE_APP_PORTS = "10200-10299"
    response = browser.post(path(session), fields)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not Endpoint.objects.exists()


def test_a_port_beside_another_choice_is_ignored(session: Session, browser: Client) -> None:
    assert launcher(session, browser, app="lab", port="x") == path(session, "lab/")


def test_an_app_is_published_on_request(session: Session, browser: Client) -> None:
    launcher(session, browser, app="lab", public="on")
    assert Endpoint.objects.get().is_public
    page = text_of(browser, path(session))
    assert "Open app to public" in page
    assert "Make private" in page
    assert browser.post(path(session, "lab/unpublish/")).headers["Location"] == path(session)
    assert not Endpoint.objects.get().is_public


def test_a_policy_without_public_apps_hides_the_option(session: Session, browser: Client) -> None:
    session.owner.policy = make_policy(allow_public_apps=False)
    session.owner.save()
    assert "Open app to public" not in text_of(browser, path(session))
    assert browser.post(path(session), {"app": "lab", "public": "on"}).status_code == 422
    assert not Endpoint.objects.exists()


@pytest.mark.loopback
def test_the_preferred_ports_outcome_is_shown(session: Session, browser: Client, settings: LazySettings) -> None:
    assert "Try preferred port" not in text_of(browser, path(session))
    first, second = free_port(), free_port()
    settings.COMPUTE_APP_PORTS = f"{first}, {second}"
    assert "Try preferred port" in text_of(browser, path(session))
    assert launcher(session, browser, app="lab", use_preferred="on", preferred=str(first)) == path(session, "lab/")
    told = launcher(session, browser, app="hand", use_preferred="on", preferred=str(first))
    assert told == path(session, "hand/?told")
    Endpoint.objects.filter(app="hand").update(state=EndpointState.READY)
    page = text_of(browser, told)
    assert f"Port {first} is taken; it has port {second} instead." in page
    assert "Go on to By hand" in page


@pytest.mark.loopback
def test_a_written_preferred_port_counts_without_the_tick(
    session: Session, browser: Client, settings: LazySettings
) -> None:
    ports = free_port(), free_port()
    settings.COMPUTE_APP_PORTS = ", ".join(map(str, ports))
    launcher(session, browser, app="lab", preferred=f" {ports[1]} ")
    assert Endpoint.objects.get().listen_port == ports[1]


def test_the_page_shows_the_apps_progress(session: Session, browser: Client) -> None:
    opened(session, detail="Starting the lab", output="line one\nline two")
    page = text_of(browser, path(session, "lab/"))
    assert "Starting the lab" in page
    assert "line two" in page
    assert "Try again" not in page


def test_a_ready_app_replaces_its_page(session: Session, browser: Client, settings: LazySettings) -> None:
    settings.COMPUTE_PUBLIC_URL, settings.COMPUTE_APPS_DOMAIN = "http://localhost:8000", "apps.localhost"
    opened(session, state=EndpointState.READY)
    address = f"http://lab--{session.pk}.apps.localhost:8000/lab"
    assert browser.get(path(session, "lab/")).headers["Location"] == address
    assert (
        browser.get(path(session, "lab/"), headers=HTMX).headers["HX-Trigger"]
        == f'{{"app:ready": {{"address": "{address}"}}}}'
    )


def test_a_failed_app_shows_why_and_retries(session: Session, browser: Client) -> None:
    endpoint = opened(session, state=EndpointState.FAILED, detail="It ended with exit code 1.", output="<b>no</b>")
    page = text_of(browser, path(session, "lab/"))
    assert "It ended with exit code 1." in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert "Try again" in page
    assert browser.post(path(session, "lab/")).headers["Location"] == path(session, "lab/")
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.output) == (EndpointState.STARTING, "")


def test_a_stopped_app_is_offered_again(session: Session, browser: Client) -> None:
    endpoint = opened(session, state=EndpointState.READY)
    stopped = path(session, "lab/?stopped")
    assert "does not answer any more" in text_of(browser, stopped)
    assert "does not answer any more" in text_of(browser, stopped, **HTMX)
    assert browser.post(stopped).headers["Location"] == path(session, "lab/")
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.STARTING
    assert browser.get(stopped).headers["Location"] == path(session, "lab/")


def test_a_stopped_port_waits_for_its_user(session: Session, browser: Client) -> None:
    app_states.report(services.open_app(session, "p8080", actor=session.owner).endpoint, EndpointState.READY)
    page = text_of(browser, path(session, "p8080/?stopped"))
    assert "Start its program again in the terminal" in page
    assert ("Wait for it" in page, "Start it again" in page) == (True, False)


def test_looking_at_an_app_does_not_open_it(session: Session, browser: Client) -> None:
    for part in ("lab/", "p8080/"):
        assert "It is not open." in text_of(browser, path(session, part))
    assert not Endpoint.objects.exists()
    for part in ("none/", "p80/", "p123456/"):
        assert browser.get(path(session, part)).status_code == 404


def test_a_share_link_is_shown_once_and_revoked(session: Session, browser: Client) -> None:
    opened(session)
    page = browser.post(path(session, "lab/share/"), {"hours": "24", "note": "for Ada"}).content.decode()
    assert "/apps/shared/" in page
    link = ShareLink.objects.get()
    assert link.expires_at - timezone.now() > timedelta(hours=23)
    page = text_of(browser, path(session))
    assert "for Ada" in page
    assert "gives a shell" in page
    assert "/apps/shared/" not in page
    assert browser.post(path(session, f"links/{link.pk}/revoke/"), headers=HTMX).status_code == 200
    assert "for Ada" not in text_of(browser, path(session))
    assert browser.post(path(session, "lab/share/"), {"hours": "99999"}).status_code == 200
    assert ShareLink.objects.count() == 1


def test_a_link_is_revoked_through_its_session_only(session: Session, browser: Client) -> None:
    other = run_session()
    App.objects.create(image=other.image, name="lab", title="The lab", port=8888)
    endpoint = opened(other)
    link = services.share(endpoint, expires=timezone.now() + timedelta(hours=1), actor=other.owner).link
    assert browser.post(path(session, f"links/{link.pk}/revoke/")).status_code == 404
    link.refresh_from_db()
    assert link.revoked_at is None


def test_a_closed_app_is_not_listed(session: Session, browser: Client) -> None:
    opened(session)
    assert browser.post(path(session, "lab/close/"), headers=HTMX).status_code == 200
    assert "opened-list" not in text_of(browser, path(session))


def test_launching_requests_the_launcher_when_usable(browser: Client, session: Session) -> None:
    fields = {"image": session.image_id, "resource_group": session.resource_group_id, "name": "new-one"}
    fields |= {"cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "0", "count": 1, "preset": ""}
    location = browser.post("/sessions/launch/", fields).headers["Location"]
    assert location == f"/sessions/#launched={Session.objects.get(name='new-one').pk}"
    batch = fields | {"name": "batch-one", "command": "true"}
    assert browser.post("/sessions/launch/", batch).headers["Location"] == "/sessions/"


def test_the_launcher_takes_as_many_queries_for_many_ports(
    session: Session, browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with CaptureQueriesContext(connection) as few:
        browser.get(path(session), headers=HTMX)
    for port in range(20):
        opened(session, f"p{8000 + port}")
    with django_assert_max_num_queries(len(few) + 1):
        assert browser.get(path(session), headers=HTMX).content.count(b"Port 80") >= 20


def test_in_the_network_of_its_hosts_the_launcher_says_why(session: Session, browser: Client) -> None:
    Cluster.objects.create(pk=session.pk, size=2, first_port=20_000)
    Session.objects.filter(pk=session.pk).update(cluster=session.pk, address=None)
    page = text_of(browser, path(session))
    assert routes.HOST_NETWORK in page
    assert 'name="port"' not in page
    assert text_of(browser, path(session, "found-ports/")).strip() == ""
