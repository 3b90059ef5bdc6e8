"""What is removed with age, and what stays."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session as LoginRow
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AccountInvitation, ApiToken, AuditEntry
from accounts.models.audit import AuditSource
from deployments.models import Deployment, DeploymentToken, Revision
from deployments.tests.making import make_deployment
from gpuplatform import tasks
from gpuplatform.celery import app
from operations import retention
from operations.logs import rotation
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Dependency, EndpointEvent, Session, SessionEvent, UsageDay, UsageHistory
from tests.factories import make_endpoint, make_session, make_user, run_cluster, run_session, session_in

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
    settings.COMPUTE_EVENTS_DAYS = 999_999
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
    assert AuditEntry.objects.count() == 2  # its own setting keeps it for five years
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
    tasks._remove_old()
    assert AuditEntry.objects.filter(object_id="new").exists()


@pytest.mark.django_db
def test_old_sessions_go_unless_somebody_needs_them(settings: Settings) -> None:
    settings.COMPUTE_SESSIONS_DAYS = 1000
    old, recent, waited_for = old_session(1001), old_session(999), old_session(1001)
    Dependency.objects.create(from_session=make_session(), to_session=waited_for)
    over, going_on = run_cluster(2), run_cluster(2)
    for member in (*over, going_on[1]):
        member.move_to(Status.TERMINATING, Reason.USER_REQUEST)
        member.move_to(Status.TERMINATED, Reason.USER_REQUEST)
        Session.objects.filter(pk=member.pk).update(ended_at=NOW - timedelta(days=1001))
    Cluster.objects.filter(pk=over[0].pk).update(ended_at=NOW - timedelta(days=1001))
    retention.remove_old(NOW)
    gone = {old.pk, *(member.pk for member in over)}
    stay = {recent.pk, waited_for.pk, *(member.pk for member in going_on)}
    assert not Session.objects.filter(pk__in=gone).exists()
    assert set(Session.objects.filter(pk__in=stay).values_list("pk", flat=True)) == stay
    assert [*Cluster.objects.values_list("pk", flat=True)] == [going_on[0].pk]


@pytest.mark.django_db
def test_old_deployments_and_their_tokens_go(settings: Settings) -> None:
    settings.COMPUTE_SESSIONS_DAYS = 1000
    old, live = make_deployment(), make_deployment()
    long_ago = NOW - timedelta(days=1001)
    Deployment.objects.filter(pk=old.pk).update(ended_at=long_ago, replicas=0)
    for name, revoked_at in (("revoked", long_ago), ("valid", None)):
        DeploymentToken.objects.create(deployment=live, name=name, digest=name, revoked_at=revoked_at)
    retention.remove_old(NOW)
    assert [*Deployment.objects.values_list("pk", flat=True)] == [live.pk]
    assert [*Revision.objects.values_list("deployment", flat=True)] == [live.pk]
    assert [*DeploymentToken.objects.values_list("name", flat=True)] == ["valid"]


@pytest.mark.django_db
def test_expired_tokens_and_invitations_go_like_logins() -> None:
    user = make_user()
    for days in (89, 91):
        moment = NOW - timedelta(days=days)
        ApiToken.objects.create(digest=str(days), user=user, name=str(days), expiry=moment)
        times = {"expires_at": moment, "accepted_at": moment}
        AccountInvitation.objects.create(email=f"{days}@example.org", policy=user.policy, digest=str(days), **times)
    ApiToken.objects.create(digest="lasting", user=user, name="lasting")
    retention.remove_old(NOW)
    assert {*ApiToken.objects.values_list("name", flat=True)} == {"89", "lasting"}
    assert [*AccountInvitation.objects.values_list("digest", flat=True)] == ["89"]


def test_logs_of_own_servers_are_cut_off_in_place(tmp_path: Path) -> None:
    log, short = tmp_path / "redis" / "redis.log", tmp_path / "dockerd.log"
    log.parent.mkdir()
    log.write_text("a" * 11)
    short.write_text("b" * 10)
    with log.open("a") as held:
        rotation.rotate(tmp_path, 10)
        held.write("next")
    assert (log.read_text(), (tmp_path / "redis" / "redis.log.1").read_text()) == ("next", "a" * 11)
    assert short.read_text() == "b" * 10
