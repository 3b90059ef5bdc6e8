"""Live resize by hand, in page and API alike."""

import json

import pytest

from resources.amounts.units import GIB
from sessions.models import Session
from sessions.resizing import services as resizing
from tests.api import client_of
from tests.factories import make_host, make_session, make_user, run_session
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    host = make_host(gpus=1, cpu=8, memory=16 * GIB)
    return run_session(host=host, cpu=2, memory=2 * GIB, fgpu=500)


def test_page_asks_for_amounts_and_says_what_is_under_way(session: Session) -> None:
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/"
    assert f"{path}resize/" in text_of(browser, path)
    dialog = text_of(browser, f"{path}resize/", **HTMX)
    for shown in ('value="2"', 'value="2g"', 'value="0.5"', "of which a whole one has 2"):
        assert shown in dialog
    amounts = {"cpu": "4", "memory": "1g", "fgpu": "0.75"}
    answer = browser.post(f"{path}resize/", amounts, headers=HTMX)
    assert json.loads(answer["HX-Trigger"]) == {"sessions:resized": {"message": f"Resizing {session.name}."}}
    assert "to 4 CPU cores, 1 GiB of memory and 0.75 fGPU" in text_of(browser, path)
    assert "is being resized" in text_of(browser, f"{path}resize/", **HTMX)
    session.refresh_from_db()
    stored = resizing.StoredResize.of(session)
    assert stored
    assert resizing.finish(session.pk, stored.id)
    assert "It has 4 CPU cores, 1 GiB of memory and 0.75 fGPU now." in text_of(browser, path)
    answer = browser.post(f"{path}resize/", {"cpu": "4", "memory": "1g", "fgpu": "0.75"})
    assert answer["Location"] == path


def test_refusals_are_shown_at_their_fields(session: Session) -> None:
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/resize/"
    answer = browser.post(path, {"cpu": "9", "memory": "64", "fgpu": "2"}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "has no unit" in page
    page = browser.post(path, {"cpu": "9", "memory": "64g", "fgpu": "2"}, headers=HTMX).content.decode()
    assert 'id="error-fgpu"' in page
    page = browser.post(path, {"cpu": "9", "memory": "64g", "fgpu": "0.5"}, headers=HTMX).content.decode()
    for field, message in (("cpu", "at most 8 CPU cores"), ("memory", "at most 16 GiB")):
        assert f'id="error-{field}"' in page
        assert message in page
    whole = run_session(fgpu=2000)
    dialog = text_of(browser_of(whole.owner), f"/sessions/{whole.pk}/resize/", **HTMX)
    assert "cannot become a part of one" in dialog
    assert 'name="fgpu"' not in dialog


def test_api_resizes_what_is_named_and_shows_the_target(session: Session) -> None:
    path, client = f"/api/v1/sessions/{session.pk}/", client_of(session.owner)
    assert client.get(path).json()["resizing"] is None
    answer = client.post(f"{path}resize/", {"memory": "1g", "fgpu": "0.2"}, format="json")
    assert answer.status_code == 200
    body = answer.json()
    assert body["resizing"] == {"cpu": 2, "memory": GIB, "fgpu": "0.2"}
    assert (body["cpu"], body["memory"], body["fgpu"]) == (2, 2 * GIB, "0.5")
    again = client.post(f"{path}resize/", {"cpu": 3}, format="json")
    assert (again.status_code, "being resized" in again.json()["detail"]) == (400, True)


def test_api_refuses_with_a_message_per_field(session: Session) -> None:
    client, path = client_of(session.owner), f"/api/v1/sessions/{session.pk}/resize/"
    errors = client.post(path, {"cpu": 9, "memory": "64g"}, format="json").json()["errors"]
    assert errors.keys() == {"cpu", "memory"}
    assert client.post(path, {}, format="json").status_code == 400
    assert client.post(path, {"name": "x"}, format="json").status_code == 400
    assert client_of(make_user()).post(path, {"cpu": 1}, format="json").status_code == 404
    waiting = make_session()
    answer = client_of(waiting.owner).post(f"/api/v1/sessions/{waiting.pk}/resize/", {"cpu": 2}, format="json")
    assert answer.json()["detail"] == "Only a running session can be resized."
