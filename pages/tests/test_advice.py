"""What to do about a session that ended otherwise than wanted."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pages.session.advice import EndAdvice, advice_for
from resources.amounts.units import GIB
from sessions import notes
from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import Session
from tests.factories import make_policy, make_user, run_session, session_in

pytestmark = pytest.mark.django_db


def advice_of(session: Session) -> EndAdvice | None:
    return advice_for(session, list(session.events.all()), timezone.now())


def ended(status: Status, reason: Reason, **fields: int) -> Session:
    session = run_session(fgpu=500)
    session.move_to(status, reason, fields=fields)
    return session


def test_out_of_memory_is_launched_again_with_more() -> None:
    session = ended(Status.ERROR, Reason.OUT_OF_MEMORY, exit_code=137)
    advice = advice_of(session)
    assert advice
    assert (advice.title, advice.action) == ("Out of memory", "Launch again with 2 GiB")
    assert advice.url.endswith(f"?again={session.pk}&memory={2 * GIB}")
    assert advice.at == session.ended_at


def test_where_the_policy_gives_no_more_that_is_said() -> None:
    session = run_session(owner=make_user(policy=make_policy(memory=GIB)))
    session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    advice = advice_of(session)
    assert advice
    assert "as much as your policy allows" in advice.text
    assert advice.url.endswith(f"?again={session.pk}")


def test_a_killed_process_is_spoken_of_for_an_hour() -> None:
    session = run_session()
    assert advice_of(session) is None
    notes.note(session, Reason.PROCESS_OUT_OF_MEMORY, "")
    advice = advice_of(session)
    assert advice
    assert not advice.is_error
    assert advice.action == "Launch again with 2 GiB"
    session.events.update(at=timezone.now() - timedelta(hours=2))
    assert advice_of(session) is None


def test_more_of_the_gpu_is_at_most_a_whole_one() -> None:
    advice = advice_of(ended(Status.ERROR, Reason.GPU_LIMIT_EXCEEDED))
    assert advice
    assert advice.changes == {"fgpu": "1"}


@pytest.mark.parametrize(("code", "words"), [(127, "not found"), (139, "crashed"), (3, "last lines of the log")])
def test_exit_codes_have_words(code: int, words: str) -> None:
    advice = advice_of(ended(Status.ERROR, Reason.CONTAINER_EXITED, exit_code=code))
    assert advice
    assert words in advice.text
    assert advice.title == f"Ended with exit code {code}"


@pytest.mark.parametrize("status", sorted(FINAL))
def test_what_its_owner_ended_needs_no_advice(status: Status) -> None:
    session = session_in(status) if status == Status.CANCELLED else ended(status, Reason.USER_REQUEST)
    assert advice_of(session) is None


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.USER_REQUEST, Reason.ADMIN_REQUEST}))
def test_every_fault_has_advice(reason: Reason) -> None:
    advice = advice_of(ended(Status.ERROR, reason, exit_code=1))
    assert advice
    assert advice.title
    assert advice.text.endswith(".")
