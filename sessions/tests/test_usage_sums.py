"""Sums of days that are over: with what is not summed they are what the record says, whatever changes it and when."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import User
from operations import retention
from resources.amounts.units import GIB
from sessions.lifecycle import Reason, Status
from sessions.models import PastSize, Session, SessionEvent, SummedDay, UsageCorrection, UsageDay, UsageSum, visible_to
from sessions.usage import sums
from sessions.usage.held import held_query
from sessions.usage.report import ReportBy, UsageReport, report_of
from tests.factories import make_group, make_project, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
DAY, DAYS = timedelta(days=1), 6
NOW = (timezone.now() - sums.SETTLE).replace(hour=12)  # the day before is settled by the database's clock too
TODAY = NOW.date()
S = Status
ZONES = ("UTC", "Asia/Seoul", "America/Los_Angeles", "Pacific/Kiritimati")


class RandomHistories:
    """Sessions of random people, and what may become of their record."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.owners = [make_user() for _ in range(3)]
        self.manager = make_user()
        self.projects = [make_project(*self.owners, managers=[self.manager]), make_project(*self.owners), None]
        self.groups = [make_group(fgpu_per_gpu=count) for count in (1, 2, 3)]

    def moment_of(self, session: Session) -> datetime:
        """Return a moment of its life."""
        return min(max(self.moment(), session.created_at), session.ended_at or NOW)

    def moment(self) -> datetime:
        """Return a moment of the last days, often close to midnight."""
        at = NOW - self.random.random() * DAYS * DAY
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        return self.random.choice((at, midnight, midnight + timedelta(microseconds=self.random.randint(-9, 9))))

    def session(self) -> Session:
        """Return a new session that has lived through some of these moments, some of them still."""
        choice = self.random.choice
        session = make_session(
            owner=choice(self.owners),
            project=choice(self.projects),
            resource_group=choice(self.groups),
            cpu=choice((1, 4)),
            memory=choice((1, 8)) * GIB,
            fgpu=choice((0, 500, 1000)),
            gpu_weight_milli=choice((1000, 2500)),
        )
        way = [S.PENDING, S.SCHEDULED, S.RUNNING, choice((S.PENDING, S.PARKED)), S.SCHEDULED, S.RUNNING, S.TERMINATED]
        times = sorted(self.moment() for _ in range(self.random.randint(1, len(way))))
        old = ""
        for at, status in zip(times, way, strict=False):
            self.event(session, at, old, status)
            old = status
        ended = {"status": S.TERMINATED, "ended_at": times[-1]} if old == S.TERMINATED else {}
        Session.objects.filter(pk=session.pk).update(created_at=times[0], **ended)
        session.refresh_from_db()
        return session

    def event(self, session: Session, at: datetime, old: str, new: str) -> None:
        """Record a change of status."""
        facts = {"old_status": old, "new_status": new, "reason": Reason.SUBMITTED}
        SessionEvent.objects.create(session=session, at=at, **facts)

    def late_event(self, session: Session) -> None:
        """Record one of long ago."""
        self.event(session, self.moment_of(session), *self.random.sample([S.PENDING, S.RUNNING, S.PARKED], 2))

    def moved_event(self, session: Session) -> None:
        """Correct when something happened."""
        at = self.moment_of(session)
        SessionEvent.objects.filter(pk=session.events.first().pk).update(at=at)  # type: ignore[union-attr]

    def lost_session(self, session: Session) -> None:
        """Delete a session."""
        session.delete()

    def resize(self, session: Session) -> None:
        """Record that it held something else before."""
        PastSize.objects.create(session=session, until=self.moment_of(session), cpu=2, memory=GIB, fgpu=250)

    def measure(self, session: Session) -> None:
        """Record what was measured of a day, or measure again."""
        names = ("measured_seconds", "idle_seconds", "cpu_milli_seconds", "fgpu_milli_seconds_used")
        measured, idle = (1000 * self.random.randint(0, 9) for _ in range(2))
        values = {"fgpu_milli_seconds": measured, "fgpu_milli_seconds_idle": idle, **dict.fromkeys(names, 0)}
        UsageDay.objects.update_or_create(session=session, day=self.moment_of(session).date(), defaults=values)

    def move(self, session: Session) -> None:
        """Let it belong to others."""
        Session.objects.filter(pk=session.pk).update(
            project=self.random.choice(self.projects), resource_group=self.random.choice(self.groups)
        )

    def change(self) -> str:
        """Change the record of a session by a connection in some time zone; return how."""
        acts: tuple[Callable[[Session], None], ...] = (
            *(self.late_event, self.moved_event, self.lost_session, self.resize, self.measure, self.move),
        )
        act, session = self.random.choice(acts), self.random.choice(Session.objects.exclude(events=None))
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('timezone', %s, false)", [self.random.choice(ZONES)])
            act(session)
            cursor.execute("SET TIME ZONE 'UTC'")
        return act.__name__


def report(by: ReportBy = ReportBy.USER, scope: Q | None = None, days: int = DAYS) -> UsageReport:
    return report_of(scope or Q(), TODAY - days * DAY, TODAY, by, NOW)


def recomputed(by: ReportBy, scope: Q) -> UsageReport:
    """Return the report as the events alone say."""
    with transaction.atomic():
        SummedDay.objects.all().delete()
        found = report(by, scope)
        transaction.set_rollback(True)
    return found


def figures(report: UsageReport) -> dict[Any, Any]:
    """Return the amounts by what they are of."""
    parts = [*report.days, *((row.name, row.used) for row in report.rows), ("total", report.total)]
    found = {(key, name): getattr(used, name) for key, used in parts for name in used.__slots__}
    return found | {(row.name, "sessions"): row.sessions for row in report.rows}


def is_exact(manager: User) -> bool:
    for by, scope in ((ReportBy.USER, Q()), (ReportBy.KIND, Q()), (ReportBy.GROUP, visible_to(manager))):
        assert figures(report(by, scope)) == pytest.approx(figures(recomputed(by, scope)), rel=1e-9, abs=1e-9), by
    return True


@pytest.mark.parametrize("seed", range(3))
def test_sums_and_today_are_what_events_say(seed: int) -> None:
    lab = RandomHistories(seed)
    for _ in range(12):
        lab.measure(lab.session())
    assert sums.sum_days(NOW) >= DAYS - 2
    assert UsageSum.objects.exists()
    assert is_exact(lab.manager)
    for _ in range(8):
        how = lab.change()
        assert is_exact(lab.manager), how
        sums.sum_days(NOW)
        assert is_exact(lab.manager), how
        assert not UsageCorrection.objects.exists()


def test_sums_are_read_in_place_of_events() -> None:
    session = RandomHistories(0).session()
    Session.objects.filter(pk=session.pk).update(created_at=NOW - 3 * DAY)
    sums.sum_days(NOW)
    UsageSum.objects.all().delete()
    UsageSum.objects.create(
        day_id=TODAY - DAY, owner=session.owner, resource_group=session.resource_group, cpu_seconds=7200
    )
    assert dict(report().days)[TODAY - DAY].cpu_hours == 2
    UsageCorrection.objects.create(since=TODAY - DAY, until=TODAY - DAY)
    assert dict(report().days)[TODAY - DAY].cpu_hours != 2


def long_ago(days: int) -> Session:
    session = make_session()
    Session.objects.filter(pk=session.pk).update(created_at=NOW - days * DAY)
    return session


def test_a_run_goes_on_where_one_died(monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago(5)
    done: list[Any] = []

    def failing(*arguments: Any) -> Any:
        done.append(arguments)
        if len(done) == 3:
            raise ConnectionError
        return held_query(*arguments)

    monkeypatch.setattr(sums, "held_query", failing)
    with pytest.raises(ConnectionError):
        sums.sum_days(NOW)
    assert list(SummedDay.objects.order_by("day").values_list("day", flat=True)) == [TODAY - 2 * DAY, TODAY - DAY]
    assert [sums.sum_days(NOW) for _ in range(2)] == [3, 0]


def test_a_run_sums_so_many_days(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sums.sum_days(NOW) == 0
    long_ago(5)
    monkeypatch.setattr(sums, "MAX_DAYS_AT_ONCE", 2)
    assert [sums.sum_days(NOW) for _ in range(4)] == [2, 2, 1, 0]


def test_a_day_is_summed_once_it_is_settled() -> None:
    long_ago(1)
    midnight = datetime(TODAY.year, TODAY.month, TODAY.day, tzinfo=UTC)
    assert sums.sum_days(midnight + sums.SETTLE - timedelta(seconds=1)) == 0
    assert sums.sum_days(midnight + sums.SETTLE) == 1


@pytest.mark.django_db(transaction=True)
def test_one_process_sums_at_a_time() -> None:
    long_ago(2)
    UsageCorrection.objects.create(since=TODAY, until=TODAY)
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [sums.LOCK])
        assert sums.sum_days(NOW) == 0
        assert UsageCorrection.objects.exists()
        cursor.execute("SELECT pg_advisory_unlock(%s)", [sums.LOCK])
    assert sums.sum_days(NOW) == 2


def test_what_happens_now_corrects_nothing() -> None:
    session = run_session()
    Session.objects.filter(pk=session.pk).update(created_at=NOW - 3 * DAY)
    session.refresh_from_db()
    session.move_to(S.TERMINATING, reason=Reason.USER_REQUEST)
    PastSize.objects.create(session=session, until=timezone.now(), cpu=1, memory=GIB, fgpu=0)
    assert not UsageCorrection.objects.exists()


@pytest.mark.parametrize("setting", ["COMPUTE_SESSIONS_DAYS", "COMPUTE_USAGE_DAYS"])
def test_sums_go_before_what_they_rest_on(setting: str, settings: Settings) -> None:
    long_ago(9)
    settings.COMPUTE_SESSIONS_DAYS = settings.COMPUTE_USAGE_DAYS = 0
    assert sums.sum_days(NOW) == 9
    setattr(settings, setting, 4)
    retention.remove_old(NOW)
    assert list(SummedDay.objects.order_by("day").values_list("day", flat=True)) == [TODAY - n * DAY for n in (3, 2, 1)]
    assert sums.sum_days(NOW) == 0


def test_a_report_takes_seven_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    lab = RandomHistories(1)
    for _ in range(4):
        lab.session()
    sums.sum_days(NOW)
    with django_assert_num_queries(7):
        report()
