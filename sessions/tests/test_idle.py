"""Idle sessions: their owners are warned, and they end unless they are used, put off or not measured."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from notifications.delivery.texts import text_of
from notifications.kinds import NoticeKind
from notifications.models import Notification
from resources import clock
from sessions.errors import RejectedError
from sessions.idle.enforcement import enforce_idle_rules, snooze, snooze_offers
from sessions.idle.preview import preview
from sessions.idle.usage_periods import SETTLE, record_periods
from sessions.idle_rules import PERIOD, start_of_period
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Conversion, IdleNotice, IdleRule, Session, SessionUsage, UsageDay, UsagePeriod
from tests.api import client_of
from tests.factories import make_group, make_policy, make_session, make_user, run_cluster, run_session
from tests.queues import take_all

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
QUIET = {"cpu_milli": 10, "received": 100, "sent": 100, "gpu_utilisation": 0}
BUSY = QUIET | {"cpu_milli": 900}
NOW = start_of_period(timezone.now()) + SETTLE + timedelta(seconds=15)


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ends be put off from NOW on, however long ago this module was imported."""
    monkeypatch.setattr(clock, "now", lambda: NOW)


@pytest.fixture
def rule() -> IdleRule:
    IdleRule.objects.all().delete()
    limits = {"idle_timeout": HOUR, "warning": 30 * MINUTE, "max_snooze": HOUR}
    return IdleRule.objects.create(name="unused", is_enabled=True, **limits)


@pytest.fixture
def session() -> Session:
    return started(run_session(fgpu=500))


def started(session: Session, ago: timedelta = 5 * HOUR) -> Session:
    Session.objects.filter(pk=session.pk).update(started_at=NOW - ago)
    session.refresh_from_db()
    return session


def record(session: Session, since: datetime, until: datetime, **use: Any) -> None:
    """Record the use every ten seconds, from `since` on."""
    count = int((until - since).total_seconds() // 10)
    SessionUsage.objects.bulk_create(
        SessionUsage(session=session, at=since + timedelta(seconds=10 * n), **(QUIET | use)) for n in range(count)
    )


def be_idle(session: Session, now: datetime = NOW, hours: float = 1.5) -> None:
    """Record that the session did nothing for the last hours, and have the periods written."""
    record(session, start_of_period(now - hours * HOUR), now)
    record_periods(now)


def status_of(session: Session) -> str:
    return Session.objects.values_list("status", flat=True).get(pk=session.pk)


def test_the_owner_is_warned_and_the_session_ends(
    rule: IdleRule, session: Session, django_capture_on_commit_callbacks: Any
) -> None:
    assert session.host
    be_idle(session)
    with django_capture_on_commit_callbacks(execute=True):
        enforce_idle_rules(NOW)
        enforce_idle_rules(NOW + 20 * timedelta(seconds=1))
    notice = IdleNotice.objects.get()
    assert notice.ends_at == NOW + 30 * MINUTE
    (told,) = Notification.objects.filter(kind=NoticeKind.IDLE, user=session.owner)
    assert "Nobody used it for 1 h, and it computed nothing. It ends at" in text_of(told).body
    ((task, arguments),) = take_all(f"host.{session.host.name}")
    assert (task, arguments[0]) == ("hostworker.tasks.show_message", session.pk)
    assert "is idle and ends in 30 min" in str(arguments[2])
    record(session, NOW, NOW + 31 * MINUTE)
    enforce_idle_rules(NOW + 29 * MINUTE)
    assert status_of(session) == Status.RUNNING
    enforce_idle_rules(NOW + 31 * MINUTE)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.IDLE)
    assert session.detail == "Nobody used it for 1 h, and it computed nothing."
    enforce_idle_rules(NOW + 32 * MINUTE)
    assert not IdleNotice.objects.exists()


def without_figures(session: Session) -> None:
    SessionUsage.objects.filter(session=session).delete()


def with_a_gap(session: Session) -> None:
    gap = start_of_period(NOW - 30 * MINUTE)
    SessionUsage.objects.filter(at__gte=gap, at__lt=gap + PERIOD - 2 * MINUTE).delete()


def with_unknown_gpu(session: Session) -> None:
    SessionUsage.objects.update(gpu_utilisation=None)


def with_work(session: Session) -> None:
    SessionUsage.objects.filter(at__gte=NOW - 50 * MINUTE, at__lt=NOW - 40 * MINUTE).update(cpu_milli=4000)


def with_a_download(session: Session) -> None:
    SessionUsage.objects.filter(at__gte=NOW - 50 * MINUTE, at__lt=NOW - 40 * MINUTE).update(received=10**7)


def with_work_since_a_minute(session: Session) -> None:
    SessionUsage.objects.filter(at__gte=NOW - MINUTE).update(gpu_utilisation=50)


def with_a_silent_host(session: Session) -> None:
    SessionUsage.objects.filter(at__gte=start_of_period(NOW - SETTLE)).delete()


def with_use(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(last_activity_at=NOW - 59 * MINUTE)


def as_a_batch_session(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(kind=Kind.BATCH, command="train")


def while_it_is_saved(session: Session) -> None:
    Conversion.objects.create(session=session, name="mine", tag="1", reference="mine:1")


def of_another_group(session: Session) -> None:
    IdleRule.objects.get().resource_groups.add(make_group())


def of_another_policy(session: Session) -> None:
    IdleRule.objects.get().policies.add(make_policy())


def under_no_rule(session: Session) -> None:
    IdleRule.objects.update(is_enabled=False)


@pytest.mark.parametrize(
    "change",
    [
        *(without_figures, with_a_gap, with_unknown_gpu, with_work, with_a_download, with_work_since_a_minute),
        *(with_a_silent_host, with_use, as_a_batch_session, while_it_is_saved, of_another_group, of_another_policy),
        under_no_rule,
    ],
)
def test_what_works_or_is_unknown_is_left_alone(
    change: Callable[[Session], None], rule: IdleRule, session: Session
) -> None:
    record(session, start_of_period(NOW - 1.5 * HOUR), NOW)
    change(session)
    enforce_idle_rules(NOW)
    assert not IdleNotice.objects.exists()


def test_a_rule_holds_for_its_policies_and_groups(rule: IdleRule, session: Session) -> None:
    rule.policies.add(session.owner.policy)
    rule.resource_groups.add(session.resource_group)
    be_idle(session)
    enforce_idle_rules(NOW)
    assert IdleNotice.objects.filter(session=session).exists()


@pytest.mark.parametrize("change", ["used", "busy", "rule off", "ended"])
def test_a_warning_is_withdrawn(change: str, rule: IdleRule, session: Session) -> None:
    be_idle(session)
    enforce_idle_rules(NOW)
    assert IdleNotice.objects.exists()
    later = NOW + 40 * MINUTE
    record(session, NOW, later, **({"cpu_milli": 500} if change == "busy" else {}))
    if change == "used":
        Session.objects.update(last_activity_at=NOW + MINUTE)
    elif change == "rule off":
        IdleRule.objects.update(is_enabled=False)
    elif change == "ended":
        services.terminate(session, actor=session.owner)
    enforce_idle_rules(later)
    assert not IdleNotice.objects.exists()
    session.refresh_from_db()
    assert session.reason != Reason.IDLE


@pytest.mark.parametrize("change", ["work", "silence"])
def test_the_last_look_before_the_end_decides(change: str, rule: IdleRule, session: Session) -> None:
    """What began within the current five minutes, and a host that does not report, put the end off."""
    be_idle(session)
    enforce_idle_rules(NOW)
    due = NOW + 30 * MINUTE
    record(session, NOW, start_of_period(due))
    if change == "work":
        record(session, start_of_period(due), due, cpu_milli=4000)
    enforce_idle_rules(due)
    assert status_of(session) == Status.RUNNING
    assert IdleNotice.objects.exists()


def test_low_use_counts_whoever_looks(rule: IdleRule, session: Session) -> None:
    changes = {"idle_timeout": None, "low_use_window": HOUR, "low_use_gpu_percent": 10, "low_use_cpu_percent": 50}
    IdleRule.objects.update(**changes)
    Session.objects.update(last_activity_at=NOW)
    record(session, start_of_period(NOW - 1.5 * HOUR), NOW, cpu_milli=300, gpu_utilisation=1)
    enforce_idle_rules(NOW)
    assert IdleNotice.objects.get().cause == "It used 30 % of its CPU and 4 % of its GPU share over 1 h."
    IdleNotice.objects.all().delete()
    IdleRule.objects.update(low_use_gpu_percent=4)
    enforce_idle_rules(NOW)
    assert not IdleNotice.objects.exists()


def test_the_end_is_put_off_within_the_rule(rule: IdleRule, session: Session) -> None:
    with pytest.raises(RejectedError, match="not about to end"):
        snooze(session.pk, HOUR, actor=session.owner)
    be_idle(session)
    enforce_idle_rules(NOW)
    IdleNotice.objects.update(ends_at=timezone.now() + MINUTE)
    with pytest.raises(RejectedError, match="put off by 1 min to 1 h"):
        snooze(session.pk, 2 * HOUR, actor=session.owner)
    notice = IdleNotice.objects.select_related("rule").get()
    assert snooze_offers(notice, session.owner) == [30 * MINUTE, HOUR]
    before = notice.ends_at
    assert snooze(session.pk, HOUR, actor=session.owner) == before + HOUR
    with pytest.raises(RejectedError, match="does not let you"):
        snooze(session.pk, MINUTE, actor=session.owner)
    assert snooze(session.pk, HOUR, actor=make_user(is_superuser=True)) == before + 2 * HOUR
    record(session, NOW, NOW + HOUR)
    enforce_idle_rules(NOW + HOUR)
    assert status_of(session) == Status.RUNNING
    assert session.events.filter(reason=Reason.SNOOZED).count() == 2


def test_the_api_puts_off_what_its_user_may_see(rule: IdleRule, session: Session) -> None:
    be_idle(session)
    enforce_idle_rules(NOW)
    url, client = f"/api/v1/sessions/{session.pk}/", client_of(session.owner)
    assert client.get(url).json()["idle_ends_at"]
    assert client_of(make_user()).post(f"{url}snooze/", {"by": "30m"}).status_code == 404
    assert client.post(f"{url}snooze/", {"by": "5h"}).status_code == 400
    before = IdleNotice.objects.get().ends_at
    assert client.post(f"{url}snooze/", {"by": "30m"}).status_code == 200
    assert IdleNotice.objects.get().ends_at >= before + 30 * MINUTE


def test_periods_are_written_once_and_caught_up(session: Session) -> None:
    end = start_of_period(NOW - SETTLE)
    record(session, end - 4 * PERIOD, end + MINUTE)
    assert record_periods(NOW - 2 * PERIOD) == 2
    assert record_periods(NOW) == 2
    assert record_periods(NOW) == 0
    periods = UsagePeriod.objects.filter(session=session).order_by("at")
    assert [period.at for period in periods] == [end - n * PERIOD for n in (4, 3, 2, 1)]
    assert {(period.cpu_percent, period.gpu_percent, period.is_idle) for period in periods} == {(1.0, 0.0, True)}
    days = UsageDay.objects.filter(session=session)
    assert sum(day.measured_seconds for day in days) == sum(day.idle_seconds for day in days) == 1200
    assert sum(day.fgpu_milli_seconds_idle for day in days) == 1200 * 500
    record_periods(NOW + timedelta(days=30))
    assert not UsagePeriod.objects.exists()
    assert UsageDay.objects.exists()


def test_records_are_kept_for_two_hours() -> None:
    session = started(run_session())
    record(session, NOW - 2 * HOUR - MINUTE, NOW - 2 * HOUR + MINUTE)
    enforce_idle_rules(NOW)
    assert {each.at >= NOW - 2 * HOUR for each in session.usages.all()} == {True}


@pytest.mark.parametrize("count", [1, 4])
def test_a_look_takes_the_same_queries_for_any_number(
    count: int, rule: IdleRule, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    host_session = started(run_session())
    for _ in range(count - 1):
        started(run_session(make_session(resource_group=host_session.resource_group)))
    for session in Session.objects.all():
        record(session, start_of_period(NOW - 1.5 * HOUR), NOW, cpu_milli=900)
    record_periods(NOW)
    with django_assert_num_queries(11):
        enforce_idle_rules(NOW)


@pytest.mark.parametrize(("max_parked", "status"), [(1, "parking"), (0, "ended")])
def test_a_rule_parks_what_can_be_parked(max_parked: int, status: str, rule: IdleRule) -> None:
    IdleRule.objects.update(action="park")
    session = started(run_session(owner=make_user(policy=make_policy(max_parked=max_parked))))
    be_idle(session)
    enforce_idle_rules(NOW)
    event = session.events.get(reason=Reason.IDLE_WARNED)
    assert ("It is parked at" in event.detail) == (status == "parking")
    record(session, NOW, NOW + 31 * MINUTE)
    enforce_idle_rules(NOW + 31 * MINUTE)
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.IDLE)
    assert session.is_parking == (status == "parking")


def test_a_cluster_is_idle_once_all_its_members_are(rule: IdleRule, django_capture_on_commit_callbacks: Any) -> None:
    members = [started(member) for member in run_cluster(fgpu=500)]
    head, busy = members[0], members[2]
    for member in members:
        record(member, start_of_period(NOW - 1.5 * HOUR), NOW)
    SessionUsage.objects.filter(session=busy).update(cpu_milli=900)
    enforce_idle_rules(NOW)
    assert not IdleNotice.objects.exists()
    UsagePeriod.objects.filter(session=busy).update(is_idle=True, cpu_milli=10)
    enforce_idle_rules(NOW)
    assert not IdleNotice.objects.exists(), "since the last whole period it has worked"
    SessionUsage.objects.filter(session=busy).update(cpu_milli=10)
    with django_capture_on_commit_callbacks(execute=True):
        enforce_idle_rules(NOW)
    assert IdleNotice.objects.get().session == head
    assert Notification.objects.filter(kind=NoticeKind.IDLE).count() == 1
    shown = [take_all(f"host.{member.host.name}") for member in members if member.host]
    assert [task for ((task, _arguments),) in shown] == ["hostworker.tasks.show_message"] * 3
    assert snooze(busy.pk, HOUR, actor=head.owner) == NOW + HOUR + 30 * MINUTE
    for member in members:
        record(member, NOW, NOW + 91 * MINUTE)
    Session.objects.filter(pk=busy.pk).update(last_activity_at=NOW + 89 * MINUTE)
    enforce_idle_rules(NOW + 89 * MINUTE)
    assert not IdleNotice.objects.exists(), "a member is used"
    Session.objects.filter(pk=busy.pk).update(last_activity_at=None)
    UsagePeriod.objects.update(is_idle=True)
    enforce_idle_rules(NOW + 90 * MINUTE)
    IdleNotice.objects.update(ends_at=NOW + 90 * MINUTE)
    enforce_idle_rules(NOW + 91 * MINUTE)
    assert {(member.status, member.reason) for member in head.members} == {(Status.TERMINATING, Reason.IDLE)}


def test_one_member_that_is_left_stands_for_its_cluster(rule: IdleRule) -> None:
    IdleRule.objects.update(idle_timeout=None, low_use_window=HOUR, low_use_cpu_percent=5)
    members = run_cluster(runs_on_all=True, kind=Kind.BATCH.value, command="train")
    done, *left = [started(member) for member in members]
    done.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    for member in left:
        record(member, start_of_period(NOW - 1.5 * HOUR), NOW)
    enforce_idle_rules(NOW)
    assert IdleNotice.objects.get().session == left[0]


def test_the_preview_takes_a_cluster_as_one(rule: IdleRule) -> None:
    members = [started(member, 9 * HOUR) for member in run_cluster(fgpu=500)]
    for member in members:
        record(member, start_of_period(NOW - 1.5 * HOUR), NOW)
    record_periods(NOW)
    (found,) = preview(rule, NOW).ended
    saved = (NOW - found.ended_at).total_seconds() * 1500
    assert (found.session, found.saved_milli_seconds) == (members[0], saved)
    UsagePeriod.objects.filter(session=members[1], at__gte=NOW - 20 * MINUTE).update(cpu_milli=900)
    looked_at = preview(rule, NOW)
    assert (looked_at.ended, looked_at.session_count) == ([], 1)
