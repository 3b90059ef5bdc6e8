"""Records of what sessions use: every few seconds, and over their whole life."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from hostworker.gpus import usage_recorder
from hostworker.gpus.usage_recorder import UsageRecorder, fold_records
from hostworker.gpus.watchdog import SessionGpuUse
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import ContainerUse
from hostworker.tests.fault_injection import FaultInjectingRuntime
from resources.amounts.units import GIB, MIB
from resources.models import Host
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionUsage, UsageHistory
from tests.factories import make_host, run_session

pytestmark = pytest.mark.django_db


class Clock:
    """The monotonic clock of the recorder."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(usage_recorder, "time", clock)
    return clock


@pytest.fixture
def host() -> Host:
    return make_host(gpus=1)


@pytest.fixture
def start(host: Host, runtime: FaultInjectingRuntime) -> Callable[..., Session]:
    """Run a session with its container."""

    def run(**overrides: Any) -> Session:
        session = run_session(host=host, **overrides)
        runtime.create(make_spec("image", session=session.pk, attempt=session.attempt))
        runtime.start(session.pk, session.attempt)
        return session

    return run


def use(seconds: float, memory: int, received: int = 0) -> ContainerUse:
    return ContainerUse(cpu_nanoseconds=int(seconds * 1e9), memory_bytes=memory, cache_bytes=0, received_bytes=received)


def test_records_are_rates_and_what_the_watchdog_saw(
    host: Host, runtime: FaultInjectingRuntime, clock: Clock, start: Callable[..., Session]
) -> None:
    plain, with_gpu = start(), start(fgpu=500)
    recorder = UsageRecorder(runtime, host, lambda: {with_gpu.pk: SessionGpuUse(memory_bytes=GIB, utilisation=40)})
    recorder.poll()
    first = plain.usages.get()
    assert (first.memory, first.cpu_milli) == (0, None)  # a rate needs two looks
    runtime.change(plain.pk, plain.attempt, use=use(5, 300 * MIB, received=20_000))
    clock.now += 5
    recorder.poll()
    assert plain.usages.count() == 1  # not due yet
    clock.now += 5
    recorder.poll()
    newest = plain.usages.first()
    assert newest
    assert (newest.cpu_milli, newest.memory, newest.received, newest.sent) == (500, 300 * MIB, 2000, 0)
    assert (newest.gpu_memory, newest.gpu_utilisation) == (None, None)
    of_gpu = with_gpu.usages.first()
    assert of_gpu
    assert (of_gpu.gpu_memory, of_gpu.gpu_utilisation) == (GIB, 40)


def record(session: Session, second: float, **fields: int) -> None:
    assert session.started_at
    SessionUsage.objects.create(session=session, at=session.started_at + timedelta(seconds=second), **fields)


def test_records_are_folded_once_into_the_history(host: Host, start: Callable[..., Session]) -> None:
    session = start(fgpu=500)
    for second in (1, 11):
        record(session, second, cpu_milli=100, memory=second)
    now = timezone.now()
    for _ in range(2):  # as after a crash, or by another worker
        fold_records(host, now)
    record(session, 21, cpu_milli=100, memory=21)
    session.refresh_from_db()
    services.end(session, Reason.USER_REQUEST, "")
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    fold_records(host, now)
    history = UsageHistory.objects.get()
    assert [point[:4] for point in history.points] == [[0, 1, 100, 1], [1, 1, 100, 11], [2, 1, 100, 21]]
    assert (history.gpu_memory_share, history.gpu_memory_cards) == (2 * GIB, 8 * GIB)


def test_folding_takes_the_same_queries_for_any_number(
    host: Host, start: Callable[..., Session], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        record(start(fgpu=100), 1, memory=1)
    with django_assert_num_queries(6):
        fold_records(host, timezone.now())
    assert UsageHistory.objects.count() == 5


def test_folding_finds_sessions_by_indexes(host: Host, start: Callable[..., Session]) -> None:
    """Most of the table has ended, and every host asks it each minute."""
    record(start(), 1, memory=1)
    with CaptureQueriesContext(connection) as queries:
        fold_records(host, timezone.now())
    with connection.cursor() as cursor:
        for kind in ("seqscan", "indexscan"):
            cursor.execute(f"SET LOCAL enable_{kind} = off")  # as what it costs with a large table
        cursor.execute(f"EXPLAIN {queries[0]['sql']}")
        plan = str(cursor.fetchall())
    assert "session_on_host" in plan
    assert "session_past" in plan


def test_what_a_host_sends_is_no_use_of_a_session(
    host: Host, runtime: FaultInjectingRuntime, clock: Clock, start: Callable[..., Session]
) -> None:
    session = start()
    unknown = ContainerUse(cpu_nanoseconds=0, memory_bytes=1, cache_bytes=0, received_bytes=None, sent_bytes=None)
    runtime.change(session.pk, session.attempt, use=unknown)
    recorder = UsageRecorder(runtime, host, dict)
    recorder.poll()
    clock.now += 10
    recorder.poll()
    newest = session.usages.first()
    assert newest
    assert (newest.cpu_milli, newest.received, newest.sent) == (0, None, None)
