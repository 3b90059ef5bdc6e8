"""Likely starts: told to who waits by what ended before, and compared with what came true."""

from datetime import timedelta

import pytest
from django.test import Client
from prometheus_client import generate_latest

from operations.metrics.state import state_registry
from operations.retention import remove_old
from resources import clock
from resources.models import Host
from scheduler.cycle import passes
from sessions.estimates.starts import accuracy
from sessions.lifecycle import Reason, Status
from sessions.models import Session, StartForecast
from tests.api import client_of
from tests.factories import make_group, make_host, make_session, make_user, run_session
from tests.web import browser_of

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(cpu=4)


def ended(session: Session, ran: timedelta) -> Session:
    """Let a session have run for so long, until now."""
    now = clock.now()
    Session.objects.filter(pk=session.pk).update(started_at=now - ran)
    session.refresh_from_db()
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    return session


def test_a_start_without_any_limit_is_told_by_the_past(host: Host) -> None:
    owner = make_user()
    for _ in range(3):
        ended(run_session(host=host, cpu=4, owner=owner), HOUR)
    run_session(host=host, cpu=4, owner=owner)
    waiting = make_session(resource_group=host.group, cpu=4, owner=owner)
    now = clock.now()
    passes.run_pass()
    told = StartForecast.objects.get(session=waiting)
    assert (told.group, told.placed_at) == (host.group, None)
    assert abs(told.likely - now - HOUR) < 5 * MINUTE
    assert now <= told.starts_from + 5 * MINUTE <= told.likely + 5 * MINUTE <= told.starts_until + 5 * MINUTE
    waiting.refresh_from_db()
    assert waiting.eta is None, "no limit promises anything"


def test_nothing_is_told_where_nothing_is_known(host: Host) -> None:
    run_session(host=host, cpu=4)
    make_session(resource_group=host.group, cpu=4)
    passes.run_pass()
    assert not StartForecast.objects.exists()


def test_while_more_run_than_have_ended_nothing_is_told(host: Host) -> None:
    """Their likes that ended first are the short ones; a limit says the latest start all the same."""
    owner = make_user()
    ended(run_session(host=host, cpu=2, owner=owner), HOUR)
    running = [run_session(host=host, cpu=2, owner=owner) for _ in range(2)]
    waiting = make_session(resource_group=host.group, cpu=4, owner=owner)
    passes.run_pass()
    assert not StartForecast.objects.exists()
    Session.objects.filter(pk__in=[each.pk for each in running]).update(time_limit=9 * HOUR)
    passes.caches.clear()
    passes.run_pass()
    waiting.refresh_from_db()
    told = StartForecast.objects.get(session=waiting)
    assert waiting.eta is not None
    assert waiting.eta <= told.starts_until < waiting.eta + 5 * MINUTE


def test_a_start_is_compared_with_what_was_told(host: Host) -> None:
    running = run_session(host=host, cpu=4, time_limit=HOUR)
    waiting = make_session(resource_group=host.group, cpu=4, time_limit=HOUR)
    passes.run_pass()
    first = StartForecast.objects.get(session=waiting)
    ended(running, 10 * MINUTE)
    passes.run_pass()
    waiting.refresh_from_db()
    assert waiting.status == Status.SCHEDULED
    told = StartForecast.objects.get(session=waiting)
    assert told.placed_at is not None
    assert (told.first_likely, told.created_at) == (first.first_likely, first.created_at)
    passes.caches.clear()
    state = passes.caches.of(host.group_id).take(clock.now())
    assert len(state.likely.of_group(host.group_id)._outcomes) == 10, "its outcome took the place of a prior one"
    assert len(state.likely.past._runs) > 0


def test_ranges_by_limits_alone_are_so_after_a_restart(host: Host) -> None:
    run_session(host=host, cpu=4, time_limit=HOUR)
    waiting = make_session(resource_group=host.group, cpu=4, time_limit=HOUR)
    passes.run_pass()
    passes.caches.clear()
    calibration = passes.caches.of(host.group_id).take(clock.now()).likely.of_group(host.group_id)
    assert waiting.pk in calibration._estimates
    before = calibration._later
    calibration.advance(clock.now() + 9 * HOUR)
    assert calibration._later == before, "who still waits then was told no range that was learned"


def test_a_start_outside_the_preferred_group_is_compared_too(host: Host) -> None:
    other = make_host(cpu=4)
    blocking = run_session(host=other, cpu=4, time_limit=HOUR)
    run_session(host=host, cpu=4, time_limit=HOUR)
    waiting = make_session(resource_group=host.group, group_choices=[host.group_id, other.group_id], cpu=4)
    passes.run_pass()
    assert StartForecast.objects.get(session=waiting).placed_at is None
    ended(blocking, 10 * MINUTE)
    passes.run_pass()
    waiting.refresh_from_db()
    assert waiting.status == Status.SCHEDULED
    assert StartForecast.objects.get(session=waiting).placed_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_scheduler_learns_from_ends_without_reading_anew(host: Host) -> None:
    running = run_session(host=host, cpu=4)
    passes.run_pass()
    state = passes.caches.of(host.group_id).take(clock.now())
    passes.caches.of(host.group_id).put_back(state)
    assert not state.likely.past
    ended(running, HOUR)
    passes.run_pass()
    assert passes.caches.of(host.group_id).take(clock.now()) is state
    assert state.likely.past


def told(session: Session, *, wait: timedelta, started: timedelta | None) -> None:
    """Have told a session a day ago that it starts between half and twice a wait."""
    at = clock.now() - timedelta(days=1)
    begin, likely, end = (at + part * wait for part in (0.5, 1, 2))
    first = {"first_from": begin, "first_likely": likely, "first_until": end}
    StartForecast.objects.create(
        session=session,
        group=session.resource_group,
        created_at=at,
        **first,
        starts_from=begin,
        likely=likely,
        starts_until=end,
        placed_at=None if started is None else at + started,
    )


def test_administrators_see_how_right_the_ranges_were(client: Client) -> None:
    group = make_group(name="lab")
    for started in (40, 60, 100, 300):
        told(make_session(resource_group=group), wait=HOUR, started=started * MINUTE)
    told(make_session(resource_group=group), wait=HOUR, started=None)
    first, last = accuracy(clock.now())
    assert (first.group, first.estimate, first.starts, first.in_range) == ("lab", "first", 4, 3)
    assert first.median_error == 30 * MINUTE
    assert last == first._replace(estimate="last")
    assert accuracy(clock.now() + timedelta(days=8)) == []
    client.force_login(make_user(is_superuser=True, is_staff=True))
    page = client.get("/admin/").content.decode()
    assert "lab: of starts 8 of 10 are to lie in their range, 7.5 of 10 did" in page
    metrics = generate_latest(state_registry()).decode()
    assert 'gpuplatform_starts_in_range_ratio{estimate="first",group="lab"} 0.75' in metrics
    assert 'gpuplatform_start_error_seconds{estimate="first",group="lab"} 1800.0' in metrics


def test_the_range_is_shown_while_a_session_waits() -> None:
    waiting = make_session()
    told(waiting, wait=25 * HOUR, started=None)
    client = client_of(waiting.owner)
    shown = client.get(f"/api/v1/sessions/{waiting.pk}/").json()["estimate"]
    assert shown["certainty"] == 0.8
    assert shown["starts_from"] < shown["starts_until"]
    page = browser_of(waiting.owner).get("/sessions/?tab=waiting").content.decode()
    assert "8 of 10" in page
    assert "8 of 10" in browser_of(waiting.owner).get(f"/sessions/{waiting.pk}/").content.decode()
    run_session(waiting)
    assert client.get(f"/api/v1/sessions/{waiting.pk}/").json()["estimate"] is None


def test_old_estimates_are_removed() -> None:
    told(make_session(), wait=HOUR, started=HOUR)
    remove_old(clock.now() + timedelta(days=28))
    assert StartForecast.objects.count() == 1
    remove_old(clock.now() + timedelta(days=31))
    assert not StartForecast.objects.exists()
