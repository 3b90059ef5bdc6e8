"""What a disabled account leaves behind."""

import pytest

from accounts.models import AuditEntry, User
from accounts.signing_in.access_loss import AccessLoss, access_ended
from hostaccess.services import host_revoked
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Reason, Status
from sessions.revocation import account_ends
from tests.factories import make_host, make_session, make_user, run_session

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


@pytest.mark.parametrize("ends_sessions", [False, True])
def test_an_administrator_chooses_whether_what_runs_ends(ends_sessions: bool) -> None:
    owner, admin = make_user(), make_user(is_superuser=True)
    running, other = run_session(owner=owner), run_session()
    account_ends.disable(owner, actor=admin, ends_sessions=ends_sessions)
    owner.refresh_from_db()
    assert not owner.is_active
    for session in (running, other):
        session.refresh_from_db()
    assert (running.status, other.status) == (Status.TERMINATING if ends_sessions else Status.RUNNING, Status.RUNNING)
    found = [(entry.action, entry.object_id) for entry in AuditEntry.objects.filter(actor=admin).order_by("pk")]
    assert ("disable", str(owner.pk)) in found
    assert (("end", running.pk) in found) is ends_sessions


def test_an_account_that_loses_less_keeps_what_waits() -> None:
    waiting = make_session()
    access_ended.send(User, user=waiting.owner, losses=frozenset(AccessLoss) - {AccessLoss.DISABLED})
    waiting.refresh_from_db()
    assert waiting.status == Status.PENDING


def test_connections_to_a_revoked_host_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host()
    running, _elsewhere = run_session(host=host), run_session()
    told: list[object] = []
    monkeypatch.setattr(notify, "sessions_changed", told.extend)
    monkeypatch.setattr(notify, "routes_changed", told.append)
    host_revoked.send(Host, name=host.name)
    assert told == [(running.pk, running.owner_id, None), running.pk]
