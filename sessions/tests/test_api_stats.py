"""What a session uses over the API: the last hour or its whole life, and only with access to the session."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from resources.amounts.units import GIB, MIB
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionUsage, UsageHistory
from tests.api import client_of
from tests.factories import make_session, make_user, run_session

pytestmark = pytest.mark.django_db


def url(session: Session, window: str = "") -> str:
    return f"/api/v1/sessions/{session.pk}/stats/{window and f'?window={window}'}"


def started(session: Session, ago: timedelta) -> datetime:
    session.started_at = timezone.now() - ago
    session.save(update_fields=["started_at"])
    return session.started_at


def record(session: Session, moments: list[datetime]) -> None:
    """Record one MiB more each time, 250 thousandths of a core, and a tenth of the GPU's time."""
    SessionUsage.objects.bulk_create(
        SessionUsage(session=session, at=at, cpu_milli=250, memory=(n + 1) * MIB, gpu_memory=GIB, gpu_utilisation=10)
        for n, at in enumerate(moments)
    )


def test_the_last_hour_is_as_it_was_recorded(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(minutes=90))
    record(session, [begun + timedelta(seconds=10 * n) for n in range(1, 540)])
    client = client_of(session.owner)
    with django_assert_num_queries(9):
        body = client.get(url(session)).json()
    points = body.pop("points")
    assert body == {
        "window": "hour",
        "step": 10,
        "cpu_milli": 1000,
        "memory": GIB,
        "gpu_memory_share": 2 * GIB,
        "gpu_memory_cards": 8 * GIB,
    }
    assert 350 < len(points) <= 360
    assert (points[-1]["memory"], points[-1]["cpu_milli"], points[-1]["received"]) == (539 * MIB, 250, None)
    assert (points[-1]["gpu_utilisation"], points[-1]["gpu_share_utilisation"]) == (10, 40)


def test_the_whole_life_is_history_and_what_came_since() -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(hours=3))
    until = begun + timedelta(seconds=80)
    UsageHistory.objects.create(
        session=session,
        begun_at=begun,
        step_seconds=40,
        points=[[0, 4, 500, 9, 0, 0, GIB, 30], [1, 4, 700, 9, 0, 0, GIB, 30]],
        folded_until=until,
    )
    record(session, [until - timedelta(seconds=1), until + timedelta(seconds=5)])
    body = client_of(session.owner).get(url(session, "life")).json()
    assert (body["window"], body["step"]) == ("life", 40)
    assert [point["cpu_milli"] for point in body["points"]] == [500, 700, 250]


def test_an_ended_session_shows_its_whole_life() -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(days=20))
    UsageHistory.objects.create(
        session=session,
        begun_at=begun,
        step_seconds=10,
        points=[[0, 1, 500, 9, 0, 0, GIB, 20]],
        folded_until=begun,
        gpu_memory_share=2 * GIB,
        gpu_memory_cards=8 * GIB,
    )
    session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    body = client_of(session.owner).get(url(session)).json()
    assert (body["window"], body["gpu_memory_share"]) == ("life", 2 * GIB)
    assert [point["gpu_share_utilisation"] for point in body["points"]] == [80]


def test_a_session_that_waits_has_no_points() -> None:
    session = make_session()
    body = client_of(session.owner).get(url(session)).json()
    assert (body["points"], body["gpu_memory_share"]) == ([], None)


def test_an_unknown_window_is_refused() -> None:
    session = make_session()
    assert client_of(session.owner).get(url(session, "year")).status_code == 400


def test_for_a_stranger_there_is_nothing() -> None:
    session = run_session(fgpu=500)
    assert client_of(make_user()).get(url(session)).status_code == 404
    assert client_of(make_user(is_superuser=True)).get(url(session)).status_code == 200
