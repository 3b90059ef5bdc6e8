"""Sessions of an image that says nothing of itself and has little more than /bin/sh: what listens in them is found."""

import pytest

from hostworker.runtime.tests.runtime_worlds import DockerWorld, launch, make_spec, tiny_world
from resources.images.catalogue.labels import read_labels
from resources.models import App
from sessions.models import Session
from tests.factories import make_image, run_reachable_session
from tests.wait import until
from tests.web import browser_of, text_of

pytestmark = [pytest.mark.docker, pytest.mark.django_db]


world = pytest.fixture(tiny_world)


@pytest.fixture
def session(world: DockerWorld) -> Session:
    """A running session of the tiny image, in a real container."""
    session = run_reachable_session(image=make_image(reference=world.image))
    launch(world.runtime(), make_spec(world.image, session=session.pk, attempt=session.attempt))
    return session


def test_what_listens_in_a_session_is_offered(world: DockerWorld, session: Session) -> None:
    labels = read_labels(world.client.inspect_image(world.image))
    assert (labels.environment, labels.apps, labels.problems) == ("", (), ())
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/apps/found-ports/"
    assert text_of(browser, path).strip() == ""
    for where in ("8123", "127.0.0.1:8124", "8125"):
        world.execute(session.pk, session.attempt, f"httpd -p {where}")
    App.objects.create(image=session.image, name="named", title="Named", port=8125)
    until(lambda: "Port 8123" in text_of(browser, path))
    page = text_of(browser, path)
    assert 'value="p8123"' in page
    assert 'value="p8124"' not in page
    assert "port 8124 of 127.0.0.1" in page
    assert "8125" not in page, "the image names it"


def test_a_container_that_is_gone_offers_nothing(world: DockerWorld, session: Session) -> None:
    world.lose_container(session.pk, session.attempt)
    assert text_of(browser_of(session.owner), f"/sessions/{session.pk}/apps/found-ports/").strip() == ""
