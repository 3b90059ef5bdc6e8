"""Every app of the catalogue comes to answer in the images that list it, started as the platform starts it."""

import threading
from collections.abc import Iterator

import pytest
import requests
from django.conf import settings
from docker.api import APIClient

from endpoints import services
from engine.containers import container_name
from hostworker.app_processes.starter import open_app
from hostworker.containers import app_environment
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec
from resources.amounts.units import GIB
from resources.images.catalogue.catalog import Entry
from resources.images.registration import register_entry
from resources.models import Image
from sessions.models import Endpoint, EndpointState, Session
from tests.factories import make_session, make_user, run_session
from tests.images import ENABLED, ENTRIES, ensure_images
from tests.wait import SECONDS

pytestmark = [pytest.mark.long(minutes=2), pytest.mark.docker, pytest.mark.django_db(transaction=True)]

CASES = [(label, app.name) for label in ENABLED for app in ENTRIES[label].apps]


@pytest.fixture(scope="module", autouse=True)
def _images() -> None:
    ensure_images()


@pytest.fixture
def world() -> Iterator[DockerWorld]:
    made = DockerWorld("")
    yield made
    made.clean_up()


def session_of(world: DockerWorld, entry: Entry) -> Session:
    """Return a session that runs in a container of the entry's image, with the environment that sessions have."""
    register_entry(entry)
    row = run_session(make_session(image=Image.objects.get(), owner=make_user(), memory=GIB))
    variables = app_environment.variables()
    spec = make_spec(entry.reference, session=row.pk, attempt=row.attempt, memory_bytes=GIB, environment=variables)
    world.runtime().create(spec)
    world.runtime().start(row.pk, row.attempt)
    Session.objects.filter(pk=row.pk).update(address=world.runtime().address(row.pk, row.attempt))
    row.refresh_from_db()
    return row


@pytest.mark.parametrize(("label", "app"), CASES, ids=[f"{label} {app}" for label, app in CASES])
def test_an_app_answers_on_its_first_page(world: DockerWorld, label: str, app: str) -> None:
    session = session_of(world, ENTRIES[label])
    endpoint = services.open_app(session, app, actor=session.owner).endpoint
    open_app(world.runtime(), endpoint.pk, threading.Event())
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.output) == (EndpointState.READY, "")
    start_path = session.image.apps.get(name=app).start_path
    answer = first_page(endpoint, session, start_path)
    assert answer.status_code == 200
    assert not answer.history
    if endpoint.token:
        refused = requests.get(url_of(endpoint, session, "/api/contents"), timeout=SECONDS)
        assert refused.status_code == 403
        assert endpoint.token not in command_lines(session)


def first_page(endpoint: Endpoint, session: Session, path: str) -> requests.Response:
    """Ask as a proxy does: with the Host that the browser sent, and the token."""
    headers = {"Host": f"{endpoint.label}.{settings.COMPUTE_APPS_DOMAIN}:8000"}
    if endpoint.token:
        headers["Authorization"] = f"token {endpoint.token}"
    return requests.get(url_of(endpoint, session, path), headers=headers, timeout=SECONDS)


def url_of(endpoint: Endpoint, session: Session, path: str) -> str:
    return f"http://{session.address}:{endpoint.port}{path}"


def command_lines(session: Session) -> str:
    client = APIClient()
    listing = client.top(container_name(session.pk, session.attempt), ps_args="-eo pid,args")["Processes"]
    client.close()
    return "\n".join(arguments for _, arguments in listing)
