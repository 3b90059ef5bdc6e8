"""GPU usage over the API: down-sampled, and only with access to the session."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from resources.units import GIB, MIB
from sessions.models import Session, SessionUsage
from sessions.stats import POINTS
from tests.api import client_of
from tests.factories import make_session, make_user, run_session

pytestmark = pytest.mark.django_db


def url(session: Session) -> str:
    return f"/api/v1/sessions/{session.pk}/stats/"


def record(session: Session, moments: list[datetime]) -> None:
    """Record one MiB more each time, and 0, 10, 20 ... percent over again."""
    SessionUsage.objects.bulk_create(
        SessionUsage(session=session, at=at, gpu_memory=(n + 1) * MIB, gpu_utilisation=n * 10 % 110)
        for n, at in enumerate(moments)
    )


def started(session: Session, ago: timedelta) -> datetime:
    session.started_at = timezone.now() - ago
    session.save(update_fields=["started_at"])
    return session.started_at


def test_a_short_history_is_not_down_sampled() -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(minutes=2))
    record(session, [begun + timedelta(seconds=10 * n + 5) for n in range(3)])
    body = client_of(session.owner).get(url(session)).json()
    assert body["step"] == 10
    assert body["gpu_memory_share"] == session.held_shares[0][0].gpu.memory // 4
    assert [(point["gpu_memory"], point["gpu_utilisation"]) for point in body["points"]] == [
        (MIB, 0.0),
        (2 * MIB, 10.0),
        (3 * MIB, 20.0),
    ]


@pytest.mark.parametrize("count", [1, 5000])
def test_a_days_history_is_down_sampled(count: int, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(days=3))
    now = timezone.now()
    day = [now - timedelta(hours=23, minutes=59) + timedelta(seconds=17 * n) for n in range(count)]
    record(session, [begun, *day])
    client = client_of(session.owner)
    with django_assert_num_queries(8):
        points = client.get(url(session)).json()["points"]
    assert 1 <= len(points) <= POINTS + 1
    assert points[-1]["gpu_memory"] == (count + 1) * MIB  # the peaks are kept
    moments = [point["at"] for point in points]
    assert moments == sorted(moments)
    assert min(moments) > (now - timedelta(days=1, minutes=1)).isoformat()  # what is older is left out


def test_unknown_utilisation_is_null_and_ignored() -> None:
    session = run_session(fgpu=500)
    begun = started(session, timedelta(hours=20))
    for second, percent in ((1, None), (700, None), (710, 40), (720, 20)):
        at = begun + timedelta(seconds=second)
        SessionUsage.objects.create(session=session, at=at, gpu_memory=GIB, gpu_utilisation=percent)
    points = client_of(session.owner).get(url(session)).json()["points"]
    assert [point["gpu_utilisation"] for point in points] == [None, 30.0]


def test_a_session_that_waits_has_no_points() -> None:
    session = make_session()
    body = client_of(session.owner).get(url(session)).json()
    assert body == {"step": 10, "gpu_memory_share": None, "points": []}


def test_for_a_stranger_there_is_nothing() -> None:
    session = run_session(fgpu=500)
    assert client_of(make_user()).get(url(session)).status_code == 404
    assert client_of(make_user(is_superuser=True)).get(url(session)).status_code == 200
