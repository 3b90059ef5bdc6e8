"""Estimates of large queues come from a process of their own, and no pass waits for it.

Seen to fail under these faults, planted in the product: estimates that are written are dropped while new ones are
computed; a child that fails is awaited for ever; its result is not applied.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import BinaryIO, cast

import pytest

from resources.models import Host
from scheduler.core.incremental_state import IncrementalState
from scheduler.cycle import forecasts, passes
from scheduler.cycle.forecasts import Forecaster
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, make_session, run_session
from tests.wait import until

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(cpu=4)


@pytest.fixture
def forecaster(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forecaster]:
    """The forecaster of the host's group, which forks for every queue."""
    monkeypatch.setattr(forecasts, "MAX_INLINE_REQUESTS", 0)
    made = passes.forecasters.of(host.group_id)
    yield made
    until(lambda: made._collect() is None and made._child is None)


def etas() -> list[datetime | None]:
    return list(Session.objects.filter(status=Status.PENDING).order_by("created_at").values_list("eta", flat=True))


def crowd(host: Host) -> Session:
    """Fill the host for an hour, and return the first of two sessions that wait."""
    run_session(host=host, cpu=4, time_limit=HOUR)
    first, _second = (make_session(resource_group=host.group, cpu=4, time_limit=HOUR) for _ in range(2))
    return first


def passed_with_estimates() -> bool:
    passes.run_pass()
    return None not in etas()


def test_estimates_of_a_fork_equal_those_of_the_pass(
    host: Host, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(host)
    passes.run_pass()
    assert etas() == [None, None]
    until(passed_with_estimates)
    forked = etas()
    Session.objects.update(eta=None)
    passes.caches.clear()
    monkeypatch.setattr(forecasts, "MAX_INLINE_REQUESTS", 300)
    passes.run_pass()
    assert etas() == forked


def test_written_estimates_stand_until_there_are_new_ones(host: Host, forecaster: Forecaster) -> None:
    first = crowd(host)
    until(passed_with_estimates)
    before = etas()
    run_session(host=(other := make_host(group=host.group, cpu=2)), cpu=1)
    passes.run_pass()
    first.refresh_from_db()
    assert (etas(), first.reason) == (before, Reason.NO_CAPACITY)
    assert other.group == host.group


def test_a_process_that_fails_is_forgotten(host: Host, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(host)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(IncrementalState, "forecast", fail)
        passes.run_pass()
    child = forecaster._child
    assert child is not None
    until(lambda: forecaster._collect() is None and forecaster._child is None)
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    forecaster._begun_at = float("-inf")
    until(passed_with_estimates)


def test_what_a_killed_process_wrote_is_left(forecaster: Forecaster) -> None:
    with subprocess.Popen(["sh", "-c", "printf half; kill -9 $$"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        forecaster._child = forecasts._Child(process.pid, cast(BinaryIO, process.stdout))
        until(lambda: forecaster._collect() is None and forecaster._child is None)


def test_many_pairs_are_estimated_by_a_fork(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "MAX_INLINE_PAIRS", 1)
    made = passes.forecasters.of(host.group_id)
    crowd(host)
    passes.run_pass()
    assert (etas(), made._child is not None) == ([None, None], True)
    until(passed_with_estimates)
    until(lambda: made._collect() is None and made._child is None)


def test_a_process_that_takes_too_long_is_ended(
    host: Host, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(host)
    monkeypatch.setattr(forecasts, "MAX_SECONDS", 1)
    with monkeypatch.context() as endless:
        endless.setattr(IncrementalState, "forecast", lambda *_: threading.Event().wait())
        passes.run_pass()
    until(lambda: forecaster._collect() is None and forecaster._child is None)
    forecaster._begun_at = float("-inf")
    until(passed_with_estimates)
