"""The shared clock: PostgreSQL's, where this machine's is wrong."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from resources import clock
from resources.clock import SharedClock

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_read", "_offset"):
            patch.setattr(clock.shared_clock, name, getattr(clock.shared_clock, name))
        yield


def test_a_right_clock_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = timezone.now()
    shared = SharedClock()
    monkeypatch.setattr(timezone, "now", lambda: mine)
    assert shared.now() == mine
    shared.note(mine + timedelta(seconds=1), time.monotonic())
    monkeypatch.setattr(time, "monotonic", lambda: shared._read[1] if shared._read else 0.0)
    assert shared.now() == mine


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_wrong_clock_is_not_used(ahead: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = timezone.now(), timezone.now() + ahead
    monkeypatch.setattr(timezone, "now", lambda: wrong)
    shared = SharedClock()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    shared.note(right, 100.0)
    assert shared.now() == right
    monkeypatch.setattr(time, "monotonic", lambda: 160.0)
    assert shared.now() == right + timedelta(minutes=1)


def test_a_clock_set_during_its_use_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = timezone.now()
    shared = SharedClock()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    shared.note(right, 100.0)
    for mine, expected in ((right, right), (right + HOUR, right), (right, right)):
        monkeypatch.setattr(timezone, "now", lambda mine=mine: mine)
        assert shared.now() == expected


def test_a_slow_reading_does_not_replace_a_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedClock()
    right, seconds = timezone.now() + HOUR, time.time()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(time, "time", lambda: seconds)
    shared.note(right, 100.0)
    shared.note(right + HOUR, 90.0)
    assert shared.now() == right


@pytest.mark.django_db
def test_each_new_connection_reads_the_clock_of_the_database() -> None:
    clock.shared_clock._read = None
    connection.ensure_connection()
    connection._configure_connection(connection.connection)  # type: ignore[attr-defined]
    assert clock.shared_clock._read is not None
    assert abs(clock.shared_clock._read[0] - timezone.now()) < HOUR


@pytest.mark.django_db
def test_a_machine_that_was_suspended_reads_the_clock_again() -> None:
    connection.ensure_connection()
    with pytest.MonkeyPatch.context() as before:  # since when only the monotonic clock stood still
        seconds = time.time() - HOUR.total_seconds()
        before.setattr(time, "time", lambda: seconds)
        clock.shared_clock._read = None
        clock.shared_clock.note(timezone.now() - HOUR, time.monotonic())
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        ((right,),) = cursor.fetchall()
    assert abs(clock.now() - right) < HOUR / 2


def test_a_slow_reading_is_better_than_a_doubtful_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right, seconds = timezone.now(), time.time()
    shared = SharedClock()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    for suspended in (0.0, HOUR.total_seconds()):
        monkeypatch.setattr(time, "time", lambda suspended=suspended: seconds + suspended)
        assert shared.is_doubtful() == (suspended > 0)
        shared.note(right + timedelta(seconds=suspended), 100.0 - suspended)
        assert not shared.is_doubtful()
    assert shared._read is not None
    assert shared._read[0] == right + HOUR
