"""Figures go back an hour, a day and a week, with what replicas held: exact, as their changes of status say."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from deployments import figures
from deployments.models import Deployment
from deployments.tests.making import make_deployment
from deployments.tests.serving import make_replica
from deployments.usage import history
from deployments.usage.history import STEPS, FiguresSpan
from proxy.authorization.control_plane import ServiceFigures
from resources import clock
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent, UsagePeriod
from sessions.notify import proxies_redis

pytestmark = pytest.mark.django_db
NOW: Final = datetime(2026, 12, 5, 12, 30, 30, tzinfo=UTC)


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """Return a deployment without replicas; it is half past twelve and half a minute."""
    made = make_deployment()
    monkeypatch.setattr(clock, "now", lambda: NOW)
    yield made
    for key in proxies_redis().keys(f"gp.serving:{made.pk}:*"):
        proxies_redis().delete(key)


def serve(deployment: Deployment, at: datetime, **fields: Any) -> None:
    """Have a process report at a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: at)
        figures.store("p", [ServiceFigures(deployment=deployment.pk, session="r", **fields)])


@pytest.mark.parametrize(("span", "back"), [("hour", 50), ("day", 20 * 60), ("week", 6 * 24 * 60)])
def test_each_span_has_its_points(deployment: Deployment, span: str, back: int) -> None:
    at = NOW - timedelta(minutes=back)
    for _ in range(3):
        serve(deployment, at, requests=6, errors=1, outstanding=4, prompt_tokens=10)
    found = history.points(deployment, FiguresSpan(span))
    step, count = STEPS[FiguresSpan(span)]
    assert len(found) == count
    assert [int(each.at.timestamp()) % step for each in found] == [0] * count
    [point] = [each for each in found if each.served.requests]
    assert point.at <= at < point.at + timedelta(seconds=step)
    assert (point.served.requests, point.served.errors, point.served.prompt_tokens) == (18, 3, 30)
    assert (point.requests_per_second, point.outstanding) == (18 / step, 12 / step)
    assert found[-1].seconds in (30, 30 * 60 + 30, 30.0 + 30 * 60)


def test_the_running_period_is_as_long_as_it_is(deployment: Deployment) -> None:
    serve(deployment, NOW, requests=15)
    assert history.points(deployment, FiguresSpan.HOUR)[-1].requests_per_second == 0.5


def hold(deployment: Deployment, fgpu: int, *changes: tuple[int, Status]) -> Session:
    """Return a replica's session with these changes of status, by seconds before now."""
    session = make_replica(deployment).session
    session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)  # so that its lease is gone; its events say what it held
    session.events.all().delete()
    before = Status.PENDING
    for seconds, status in changes:
        at = NOW - timedelta(seconds=seconds)
        SessionEvent.objects.create(
            session=session, at=at, old_status=before.value, new_status=status.value, reason=Reason.STARTED
        )
        before = status
    ended = next((seconds for seconds, status in changes if status == Status.TERMINATED), 0)
    Session.objects.filter(pk=session.pk).update(fgpu=fgpu, ended_at=NOW - timedelta(seconds=ended))
    return session


def test_what_replicas_held_is_exact(deployment: Deployment) -> None:
    hold(deployment, 500, (630, Status.RUNNING), (510, Status.PARKED), (60, Status.RUNNING))
    hold(deployment, 2000, (99_999, Status.RUNNING), (90_000, Status.TERMINATED))
    hold(make_deployment(name="other", owner=deployment.owner), 1000, (630, Status.RUNNING))
    found = history.points(deployment, FiguresSpan.HOUR)
    assert [round(each.held.replica_seconds) for each in found[-11:]] == [60, 60, 0, 0, 0, 0, 0, 0, 0, 30, 30]
    assert sum(each.held.fgpu_hours for each in found) == pytest.approx(0.5 * 180 / 3600)
    assert [each.replicas for each in found[-2:]] == [0.5, 1.0]
    week = history.points(deployment, FiguresSpan.WEEK)
    assert sum(each.held.fgpu_hours for each in week) == pytest.approx((0.5 * 180 + 2 * 9999) / 3600)


def test_a_thousand_requests_have_a_cost(deployment: Deployment) -> None:
    hold(deployment, 500, (1830, Status.RUNNING))
    serve(deployment, NOW - timedelta(minutes=5), requests=4)
    *_, before, point, _, _, _, _, _ = history.points(deployment, FiguresSpan.HOUR)
    assert before.fgpu_hours_per_1000_requests is None
    assert before.held.fgpu_hours == pytest.approx(0.5 / 60)
    assert point.fgpu_hours_per_1000_requests == pytest.approx(0.5 / 60 / 4 * 1000)


def test_gpu_use_is_the_mean_of_the_replicas(deployment: Deployment) -> None:
    sessions = [hold(deployment, 500, (1830, Status.RUNNING)) for _ in range(2)]
    for session, percent in zip(sessions, (40.0, 80.0), strict=True):
        for minutes in (10, 5):
            UsagePeriod.objects.create(
                **{"session": session, "at": NOW - timedelta(minutes=minutes, seconds=30), "fgpu": 500},
                **{"gpu_percent": percent, "was_used": True, "is_idle": False},
            )
    by_minute = [each.gpu_percent for each in history.points(deployment, FiguresSpan.HOUR)]
    assert by_minute == [None] * 49 + [60.0] * 10 + [None]
    assert history.points(deployment, FiguresSpan.DAY)[-2].gpu_percent == 60.0
