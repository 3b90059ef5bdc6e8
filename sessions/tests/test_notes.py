"""Events on a timeline that change no status."""

from datetime import timedelta

import pytest

from sessions import notes, notify
from sessions.lifecycle import Reason
from sessions.models import Session
from tests.factories import make_session, make_user

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def test_a_note_is_cut_stored_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(notify, "sessions_changed", told.extend)
    session, actor = make_session(), make_user()
    assert notes.note(session, Reason.ENTERED, "x" * 301, actor=actor)
    event = session.events.get()
    assert (event.detail, event.actor, event.reason) == ("x" * 300, actor, Reason.ENTERED)
    assert told == [(session.pk, session.owner_id, None)]


def test_the_same_is_noted_once_within_its_time() -> None:
    session, actor = make_session(), make_user()
    for detail, by, is_new in (("a", None, True), ("a", None, False), ("a", actor, True), ("b", None, True)):
        assert notes.note(session, Reason.ENTERED, detail, actor=by, at_most_every=HOUR) is is_new
    assert notes.note(session, Reason.ENTERED, "a")
    for event in session.events.all():
        event.at -= 2 * HOUR
        event.save()
    assert notes.note(session, Reason.ENTERED, "a", at_most_every=HOUR)


def test_a_reason_is_noted_once_whatever_its_detail() -> None:
    session = make_session()
    assert notes.note_once(session, Reason.OUTPUT_SLOWED, "a", within=HOUR) is True
    assert notes.note_once(session, Reason.OUTPUT_SLOWED, "b", within=HOUR) is False
    assert notes.note_once(session, Reason.DISK_NEARLY_FULL, "b", within=HOUR) is True
    session.events.update(at=session.created_at - 2 * HOUR)
    assert notes.note_once(session, Reason.OUTPUT_SLOWED, "b", within=HOUR) is True


def test_nothing_is_noted_of_a_session_that_is_gone() -> None:
    session = make_session()
    Session.objects.filter(pk=session.pk).delete()
    assert notes.note(session, Reason.ENTERED, "a") is False
