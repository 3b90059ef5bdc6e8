"""The usage report: GPU hours, waiting and idle time, by user, project and group, for those who may see it."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Q
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts.models import Project
from resources.amounts.units import GIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent, UsageDay
from sessions.usage.report import ReportBy, report_of
from tests.api import client_of
from tests.factories import make_group, make_project, make_session, make_user

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
NOW = FIRST + 10 * DAY
S = Status


def lived(*changes: tuple[Status, float], **fields: object) -> Session:
    """Return a session that changed its status so many hours after FIRST."""
    session = make_session(**{"cpu": 4, "memory": 8 * GIB, "fgpu": 1000} | fields)
    old = ""
    for status, hours in changes:
        at = FIRST + hours * HOUR
        SessionEvent.objects.create(session=session, at=at, old_status=old, new_status=status, reason=Reason.SUBMITTED)
        old = status
    ended = FIRST + changes[-1][1] * HOUR if changes[-1][0] == S.TERMINATED else None
    ends = {"status": S.TERMINATED, "ended_at": ended} if ended else {}
    Session.objects.filter(pk=session.pk).update(created_at=FIRST + changes[0][1] * HOUR, **ends)
    return session


def test_held_waiting_and_idle_hours_are_summed_by_day() -> None:
    group = make_group(fgpu_per_gpu=2)
    session = lived(
        *((S.PENDING, 18), (S.SCHEDULED, 20), (S.PENDING, 20.5), (S.SCHEDULED, 21), (S.RUNNING, 22)),
        (S.TERMINATED, 30),
        resource_group=group,
    )
    lived((S.PENDING, 400), resource_group=group)
    UsageDay.objects.create(
        session=session,
        day=FIRST.date(),
        measured_seconds=3600,
        idle_seconds=900,
        cpu_milli_seconds=0,
        fgpu_milli_seconds=3600 * 1000,
        fgpu_milli_seconds_idle=900 * 1000,
        fgpu_milli_seconds_used=0,
    )
    report = report_of(Q(), FIRST.date(), FIRST.date() + 2 * DAY, ReportBy.GROUP, NOW)
    (row,) = report.rows
    assert (row.name, row.sessions, report.sessions) == (group.name, 1, 1)
    assert row.used.gpu_hours == pytest.approx(9.5 / 2)
    assert row.used.cpu_hours == pytest.approx(9.5 * 4)
    assert row.used.memory_gib_hours == pytest.approx(9.5 * 8)
    assert row.used.waiting_hours == pytest.approx(2.5)
    assert (row.used.gpu_measured_hours, row.used.gpu_idle_hours, row.used.idle_percent) == (0.5, 0.125, 25)
    assert [round(used.gpu_hours, 3) for _, used in report.days] == [1.75, 3, 0]


def test_running_sessions_count_until_now() -> None:
    other = lived((S.PENDING, 0), (S.TERMINATED, 6))
    waits = lived((S.PENDING, 1))
    waits.depends_on.add(other)
    follows = lived((S.PENDING, 1))
    follows.depends_on.add(lived((S.PENDING, 0), (S.RUNNING, 3)), through_defaults={"kind": "after"})
    later = lived((S.PENDING, 1), not_before=FIRST + 8 * HOUR)
    never = lived((S.PENDING, 1))
    never.depends_on.add(later)
    runs = lived((S.PENDING, 2), (S.SCHEDULED, 3))
    report = report_of(Q(), FIRST.date(), FIRST.date(), ReportBy.USER, FIRST + 10 * HOUR)
    used = {row.name: row.used for row in report.rows}
    assert used[runs.owner.email].cpu_hours == pytest.approx(28)
    waited = {session: used[session.owner.email].waiting_hours for session in (waits, follows, later, never)}
    assert waited == {waits: pytest.approx(4), follows: pytest.approx(7), later: pytest.approx(2), never: 0}


def test_everybody_sees_what_they_may() -> None:
    manager, member = make_user(), make_user()
    project: Project = make_project(member, managers=[manager])
    group = make_group()
    lived((S.PENDING, 0), (S.SCHEDULED, 1), (S.TERMINATED, 3), owner=member, project=project, resource_group=group)
    lived((S.PENDING, 0), (S.SCHEDULED, 1), (S.TERMINATED, 3), owner=member, resource_group=group)
    lived((S.PENDING, 0), (S.SCHEDULED, 1), (S.TERMINATED, 3), resource_group=group)
    url = "/api/v1/usage/?since=2026-03-01&until=2026-03-02&by="
    admin = client_of(make_user(is_superuser=True))
    by_project = {row["name"]: row["sessions"] for row in admin.get(f"{url}project").json()["rows"]}
    assert by_project == {project.name: 1, "": 2}
    assert [row["sessions"] for row in admin.get(f"{url}group").json()["rows"]] == [3]
    assert [row["name"] for row in client_of(member).get(f"{url}user").json()["rows"]] == [member.email]
    assert client_of(make_user()).get(f"{url}user").json()["rows"] == []
    odd = ("until=0001-01-01", "since=9999-12-31&until=9999-12-31")
    for query in ("since=2026-03-02&until=2026-03-01", "since=2020-01-01", "since=x", "by=x", *odd):
        assert admin.get(f"/api/v1/usage/?{query}").status_code == 400


@pytest.mark.parametrize("count", [1, 5])
def test_a_report_takes_five_queries(count: int, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for _ in range(count):
        lived((S.PENDING, 0), (S.SCHEDULED, 1), (S.TERMINATED, 3))
    with django_assert_num_queries(5):
        report_of(Q(), FIRST.date(), FIRST.date() + 2 * DAY, ReportBy.USER, NOW)


def test_page_and_csv_show_the_report(client: Client) -> None:
    session = lived((S.PENDING, 0), (S.SCHEDULED, 1), (S.TERMINATED, 3))
    session.owner.email = "=cmd@example.org"
    session.owner.save()
    client.force_login(session.owner)
    page = client.get("/usage/?since=2026-03-01&until=2026-03-03").content.decode()
    assert page.count('class="usage-held"') == 3
    assert "<td>1.0</td>" in page
    wrong = client.get("/usage/?since=2026-03-05&until=2026-03-03")
    assert (wrong.status_code, "Choose 1 to 366 days." in wrong.content.decode()) == (400, True)
    wrong = client.get("/usage/?until=0001-01-01")
    assert (wrong.status_code, "There is no usage of this day." in wrong.content.decode()) == (400, True)
    sheet = client.get("/usage/csv/?since=2026-03-01&until=2026-03-03")
    assert sheet["Content-Type"].startswith("text/csv")
    assert sheet.content.decode().splitlines()[1] == "'=cmd@example.org,1,1.000,0.000,0.000,8.000,16.000,1.000,1.000"
    client.logout()
    assert client.get("/usage/").status_code == 302
