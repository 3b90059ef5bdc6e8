"""What a disabled account leaves behind."""

import pytest

from sessions.lifecycle import Reason, Status
from tests.factories import make_session, make_user, run_session

pytestmark = pytest.mark.django_db


def test_waiting_sessions_of_a_disabled_account_are_cancelled() -> None:
    owner = make_user()
    waiting, running, other = make_session(owner=owner), run_session(owner=owner), make_session()
    owner.is_active = False
    owner.save()
    for session in (waiting, running, other):
        session.refresh_from_db()
    assert (waiting.status, waiting.reason) == (Status.CANCELLED, Reason.ADMIN_REQUEST)
    assert waiting.detail == "The account was disabled."
    assert (running.status, other.status) == (Status.RUNNING, Status.PENDING)
