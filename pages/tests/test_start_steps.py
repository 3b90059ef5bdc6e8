"""The start of a session as steps with their durations."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from pages.session.steps import StartStep, start_steps, total
from sessions import notes
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import run_session, session_in

pytestmark = pytest.mark.django_db


def steps_of(session: Session) -> list[StartStep]:
    return start_steps(session, list(session.events.all()))


def states(session: Session) -> dict[str, str]:
    return {step.name.value: step.state.value for step in steps_of(session)}


def at_seconds(session: Session, *seconds: float) -> datetime:
    """Put the session's events at these seconds after its creation."""
    for event, second in zip(session.events.all(), seconds, strict=True):
        event.at = session.created_at + timedelta(seconds=second)
        event.save(update_fields=["at"])
    return session.created_at


def test_a_started_session_has_durations() -> None:
    session = run_session()
    at_seconds(session, 2, 2.5, 3.5)
    assert states(session) == {"queue": "done", "host": "done", "container": "done"}
    spans = [step.span.total_seconds() for step in steps_of(session) if step.span]
    assert spans == [2, 0.5, 1]
    assert total(steps_of(session)) == timedelta(seconds=3.5)


def test_a_pull_is_a_step_while_it_lasts_and_afterwards() -> None:
    session = session_in(Status.PREPARING)
    assert states(session) == {"queue": "done", "host": "done", "container": "current"}
    session.pulled_bytes = 5
    assert states(session) == {"queue": "done", "host": "done", "image": "current", "container": "coming"}
    notes.note(session, Reason.IMAGE_PULLED, "")
    assert states(session) == {"queue": "done", "host": "done", "image": "done", "container": "current"}
    assert total(steps_of(session)) is None


def test_the_step_in_which_a_session_ended_has_failed() -> None:
    session = session_in(Status.PREPARING)
    session.move_to(Status.ERROR, Reason.START_FAILED)
    assert states(session) == {"queue": "done", "host": "done", "container": "failed"}
    assert states(session_in(Status.CANCELLED)) == {"queue": "failed", "host": "coming", "container": "coming"}


def test_back_in_the_queue_the_steps_begin_again() -> None:
    session = session_in(Status.SCHEDULED)
    session.move_to(Status.PENDING, Reason.CLAIM_TIMEOUT, fields={"host_id": None})
    assert states(session) == {"queue": "current", "host": "coming", "container": "coming"}
    (first, *_) = steps_of(session)
    assert first.began_at == session.created_at < timezone.now()
