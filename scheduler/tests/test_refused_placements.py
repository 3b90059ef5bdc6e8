"""One write that the database refuses fails one placement: the others start, and it is tried again later."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from scheduler.cycle import passes
from sessions.lifecycle import Reason, Status
from sessions.models import Lease, Session
from tests.factories import make_host, make_session

pytestmark = pytest.mark.django_db(transaction=True)

REFUSE = """
CREATE FUNCTION refuse_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.session_id LIKE 'refused%' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = 'check_violation'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse_lease AFTER INSERT ON compute_lease
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_lease();
"""


@pytest.fixture(autouse=True)
def _refusing() -> Iterator[None]:
    """Have the database refuse leases of sessions whose ids begin with `refused`, at the commit, as its guards do."""
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
        yield
        cursor.execute("DROP FUNCTION refuse_lease() CASCADE")


def status_of(*sessions: Session) -> list[str]:
    return [Session.objects.values_list("status", flat=True).get(pk=session.pk) for session in sessions]


def test_a_refused_write_fails_one_placement(caplog: pytest.LogCaptureFixture) -> None:
    """Today it undid the pass, and every later one: nothing started any more, in no group."""
    host = make_host(gpus=1, cpu=64)
    bad = [make_session(id=f"refused{n:09}", resource_group=host.group, fgpu=1000) for n in range(2)]
    good = [make_session(resource_group=host.group) for _ in range(9)]
    elsewhere = make_session(resource_group=make_host().group)
    behind = make_session(resource_group=host.group, fgpu=2000)  # fits once the refused ones hold nothing
    assert passes.run_pass() == 11
    assert {*status_of(*good, elsewhere, behind)} == {Status.SCHEDULED}
    assert status_of(*bad) == [Status.PENDING, Status.PENDING]
    assert Lease.objects.count() == 11
    stored = Session.objects.get(pk=bad[0].pk)
    assert stored.reason == Reason.PLACEMENT_REFUSED
    assert [event.reason for event in stored.events.all()] == [Reason.PLACEMENT_REFUSED]
    assert f"session {stored.pk}: the database refused its placement: not this one" in caplog.text
    assert passes.run_pass() == 0
    assert "refused, so all" in caplog.text
    caplog.clear()
    passes.run_pass()
    assert "refused" not in caplog.text  # set aside, not tried in every pass


def test_a_refused_placement_is_tried_again_later() -> None:
    host = make_host()
    session = make_session(id="refused000000000", resource_group=host.group)
    assert passes.run_pass() == 0
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse_lease ON compute_lease")
    assert passes.run_pass() == 0
    Session.objects.update(refused_until=timezone.now() - timedelta(seconds=1))
    assert passes.run_pass() == 1
    assert status_of(session) == [Status.SCHEDULED]
