"""Another name for a session, by service and API."""

import pytest

from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_session, make_user, run_session, session_in

pytestmark = pytest.mark.django_db


def test_a_new_name_is_noted_on_the_timeline() -> None:
    session = run_session(name="before")
    services.rename(session, "after", actor=session.owner)
    event = session.events.last()
    assert event
    assert (event.reason, event.detail, event.actor) == (Reason.RENAMED, "Renamed from before to after.", session.owner)
    assert event.old_status == event.new_status == session.status
    count = session.events.count()
    services.rename(session, "after", actor=session.owner)
    assert session.events.count() == count


def test_names_of_live_sessions_stay_unique() -> None:
    session = make_session(name="one")
    make_session(owner=session.owner, name="two")
    with pytest.raises(RejectedError) as refused:
        services.rename(session, "two", actor=session.owner)
    assert set(refused.value.errors) == {"name"}
    assert not session.events.filter(reason=Reason.RENAMED).exists()
    ended = session_in(Status.CANCELLED, owner=session.owner, name="three")
    services.rename(session, ended.name, actor=session.owner)
    assert Session.objects.get(pk=session.pk).name == "three"


def test_the_api_renames() -> None:
    session = make_session(name="before")
    url = f"/api/v1/sessions/{session.pk}/"
    answer = client_of(session.owner).patch(url, {"name": "after"}, format="json")
    assert (answer.status_code, answer.json()["name"]) == (200, "after")
    assert client_of(session.owner).patch(url, {"name": "!"}, format="json").status_code == 400
    assert client_of(session.owner).patch(url, {}, format="json").status_code == 400
    assert client_of(make_user()).patch(url, {"name": "stolen"}, format="json").status_code == 404
