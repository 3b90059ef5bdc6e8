"""Live resize by hand, in page and API alike."""

import json
import re
from typing import Any

import pytest

from accounts.models import ResourcePolicy
from resources.amounts.units import GIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import StoredResize
from tests.api import client_of
from tests.factories import make_host, make_session, make_user, run_session, session_in
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    host = make_host(gpus=1, cpu=8, memory=16 * GIB)
    return run_session(host=host, cpu=2, memory=2 * GIB, fgpu=500)


def errors_in(answer: Any) -> dict[str, str]:
    """Return the messages at the fields of the dialog."""
    found = re.findall(r'id="error-(\w+)">(.*?)</div>', answer.content.decode())
    return {field: re.sub("<.*?>", "", text).strip() for field, text in found if text}


def test_page_asks_for_amounts_and_says_what_is_under_way(session: Session) -> None:
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/"
    assert f"{path}resize/" in text_of(browser, path)
    dialog = text_of(browser, f"{path}resize/", **HTMX)
    for shown in ('value="2"', 'value="2 GiB"', 'value="0.5"', "of which a whole one has 2"):
        assert shown in dialog
    amounts = {"cpu": "4", "memory": "1g", "fgpu": "0.75"}
    answer = browser.post(f"{path}resize/", amounts, headers=HTMX)
    assert json.loads(answer["HX-Trigger"]) == {"sessions:resized": {"message": f"Resizing {session.name}."}}
    assert "to 4 CPU cores, 1 GiB of memory and 0.75 fGPU" in text_of(browser, path)
    assert "is being resized" in text_of(browser, f"{path}resize/", **HTMX)
    session.refresh_from_db()
    stored = StoredResize.of(session)
    assert stored
    assert resizing.finish(session.pk, stored.id)
    assert "It has 4 CPU cores, 1 GiB of memory and 0.75 fGPU now." in text_of(browser, path)
    answer = browser.post(f"{path}resize/", {"cpu": "4", "memory": "1g", "fgpu": "0.75"})
    assert answer["Location"] == path


def test_what_is_free_now_is_said_and_bounds_the_sliders(session: Session) -> None:
    run_session(host=session.host, cpu=1, memory=GIB, fgpu=500)
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/resize/"
    dialog = text_of(browser, path, **HTMX)
    assert "Free now: 5 CPU cores more, up to 7 CPU cores in all." in dialog
    assert "Free now: 13 GiB of memory more, up to 15 GiB of memory in all." in dialog
    for bound in (7, 15 * GIB, 1500):
        assert f'data-most="{bound}"' in dialog
    ResourcePolicy.objects.update(cpu=2)
    assert "No more is free now." in text_of(browser, path, **HTMX)
    make_session(resource_group=session.resource_group, reason=Reason.NO_CAPACITY)
    dialog = text_of(browser, path, **HTMX)
    assert "what is free goes to them first" in dialog
    assert dialog.count("No more is free now.") == 3


def test_refusals_are_shown_at_their_fields(session: Session) -> None:
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/resize/"
    answer = browser.post(path, {"cpu": "9", "memory": "64", "fgpu": "2"}, headers=HTMX)
    assert answer.status_code == 422
    assert errors_in(answer) == {
        "cpu": "Its host has room for at most 8 CPU cores in this session now.",
        "memory": "&#x27;64&#x27; has no unit; write for example 4g or 512m.",
        "fgpu": "A part of a GPU stays one: from 0.01 to 1.99 fGPU.",
    }
    answer = browser.post(path, {"cpu": "9", "memory": "64g", "fgpu": "2"}, headers=HTMX)
    assert "at most 16 GiB" in errors_in(answer)["memory"]
    assert errors_in(answer).keys() == {"cpu", "memory", "fgpu"}
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
    ended = session_in(Status.TERMINATED)
    answer = client_of(ended.owner).post(f"/api/v1/sessions/{ended.pk}/resize/", {"cpu": 2}, format="json")
    assert answer.json()["detail"] == "Only a running session can be resized."
