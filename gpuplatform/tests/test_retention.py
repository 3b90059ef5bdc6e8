"""What is removed with age, and what stays."""

from datetime import UTC, datetime, timedelta

import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session as LoginRow
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AuditEntry
from accounts.models.audit import AuditSource
from gpuplatform import tasks
from gpuplatform.celery import app
from operations import retention
from sessions.lifecycle import Status
from sessions.models import EndpointEvent, Session, SessionEvent, UsageDay, UsageHistory
from tests.factories import make_endpoint, run_session, session_in

SUMS = (
    *("measured_seconds", "idle_seconds", "cpu_milli_seconds"),
    *("fgpu_milli_seconds", "fgpu_milli_seconds_idle", "fgpu_milli_seconds_used"),
)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def old_session(days: int) -> Session:
    """Return a session that ended so many days ago, with a timeline, plots and sums."""
    session = session_in(Status.TERMINATED)
    Session.objects.filter(pk=session.pk).update(ended_at=NOW - timedelta(days=days))
    _add_rows(session)
    return session


def _add_rows(session: Session) -> None:
    long_ago = NOW - timedelta(days=1000)
    SessionEvent.objects.create(session=session, at=long_ago, new_status="PENDING", reason="submitted")
    SessionEvent.objects.create(
        session=session, at=long_ago, old_status="RUNNING", new_status="RUNNING", reason="entered"
    )
    EndpointEvent.objects.create(endpoint=make_endpoint(session), at=long_ago, what="opened")
    UsageHistory.objects.create(session=session, begun_at=long_ago, step_seconds=5, folded_until=long_ago)
    sums = dict.fromkeys(SUMS, 0)
    UsageDay.objects.create(session=session, day=long_ago.date(), **sums)


def counts(session: Session) -> tuple[bool, bool, bool, bool]:
    """Return whether notes on the timeline, events of apps, plots and sums are there."""
    return (
        session.events.filter(old_status=F("new_status")).exists(),
        EndpointEvent.objects.filter(endpoint__session=session).exists(),
        UsageHistory.objects.filter(session=session).exists(),
        UsageDay.objects.filter(session=session).exists(),
    )


@pytest.mark.django_db
def test_rows_of_old_sessions_go_by_their_settings(settings: Settings) -> None:
    old, recent = old_session(366), old_session(364)
    running = run_session()
    _add_rows(running)
    retention.remove_old(NOW)
    assert counts(old) == (False, False, False, True)
    assert counts(recent) == counts(running) == (True, True, True, True)
    assert old.events.filter(reason="submitted").exists()  # changes of status stay: usage reports rest on them
    settings.COMPUTE_EVENTS_DAYS = 0
    settings.COMPUTE_STATISTICS_DAYS = 30
    settings.COMPUTE_USAGE_DAYS = 1001
    retention.remove_old(NOW)
    assert counts(recent) == (True, True, False, True)
    settings.COMPUTE_USAGE_DAYS = 999
    retention.remove_old(NOW)
    assert counts(recent)[3] is False
    assert not any(retention.remove_old(NOW).values())


@pytest.mark.django_db
def test_audit_log_and_sign_ins_go_by_their_settings(settings: Settings) -> None:
    for days in (89, 91):
        moment = NOW - timedelta(days=days)
        AuditEntry.objects.create(at=moment, source=AuditSource.PAGE, object_id=str(days))
        LoginRow.objects.create(session_key=str(days), session_data="", expire_date=moment)
        attempt = AccessAttempt.objects.create(username=str(days), failures_since_start=1, get_data="", post_data="")
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=moment)
    retention.remove_old(NOW)
    assert AuditEntry.objects.count() == 2  # it is kept for ever, unless the setting says otherwise
    assert [*LoginRow.objects.values_list("session_key", flat=True)] == ["89"]
    assert [*AccessAttempt.objects.values_list("username", flat=True)] == ["89"]
    settings.COMPUTE_AUDIT_DAYS = 90
    retention.remove_old(NOW)
    assert [*AuditEntry.objects.values_list("object_id", flat=True)] == ["89"]


@pytest.mark.django_db
def test_much_is_removed_in_parts_over_several_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PART", 3)
    monkeypatch.setattr(retention, "MAX_PARTS", 2)
    settings.COMPUTE_AUDIT_DAYS = 1
    AuditEntry.objects.bulk_create(AuditEntry(at=NOW - timedelta(days=2)) for _ in range(8))
    assert [retention.remove_old(NOW)["audit_entries"] for _ in range(3)] == [6, 2, 0]
    assert "gpuplatform.tasks.remove_old" in {entry["task"] for entry in app.conf.beat_schedule.values()}


@pytest.mark.django_db
def test_a_clock_that_is_years_ahead_removes_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.COMPUTE_AUDIT_DAYS = 365
    AuditEntry.objects.create(source=AuditSource.PAGE, object_id="new")
    ahead = timezone.now() + timedelta(days=800)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # that of the test stays
    tasks._remove_old()
    assert AuditEntry.objects.filter(object_id="new").exists()
