"""The host's side of live resize: what is asked for is applied, or refused, and whatever dies, it is settled."""

import pytest

from hostworker.agent import reconciler
from hostworker.containers import resizer
from hostworker.runtime_protocol import ContainerUse, EngineUnreachableError, ResizeError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from resources.amounts.units import GIB
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Lease, Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from tests.factories import session_in

pytestmark = pytest.mark.django_db

BIGGER = SessionSize(cpu=1, memory=2 * GIB, fgpu=700)
SMALLER = SessionSize(cpu=1, memory=GIB // 2, fgpu=200)


@pytest.fixture
def session(runtime: FaultInjectingRuntime) -> Session:
    """A running session of 1 core, 1 GiB and 0.5 fGPU, on a host with as much again."""
    made = session_in(Status.SCHEDULED, fgpu=500)
    assert made.host
    made.host.memory, made.host.cpu = 64 * GIB, 16
    made.host.save()
    start_session(runtime, made.pk, 1)
    return Session.objects.get(pk=made.pk)


def ask(session: Session, target: SessionSize) -> str:
    stored = StoredResize.of(resizing.resize(session, target, actor=session.owner))
    assert stored
    return stored.id


def in_container(runtime: FaultInjectingRuntime, session: Session) -> SessionSize:
    spec = runtime.spec(session.pk, session.attempt)
    assert spec
    return SessionSize(cpu=spec.cpu, memory=spec.memory_bytes, fgpu=sum(gpu.share_milli for gpu in spec.gpus))


def held(session: Session) -> SessionSize:
    lease = Lease.objects.get(session=session)
    session.refresh_from_db()
    return SessionSize(cpu=lease.cpu, memory=lease.memory, fgpu=sum(each.milli for each in lease.shares.all()))


def reconcile(runtime: FaultInjectingRuntime, session: Session) -> None:
    assert session.host
    reconciler.reconcile(runtime, session.host, lambda function, *arguments: function(*arguments))


@pytest.mark.parametrize("target", [BIGGER, SMALLER])
def test_the_container_gets_what_was_asked_for(
    runtime: FaultInjectingRuntime, session: Session, target: SessionSize
) -> None:
    number = ask(session, target)
    resizer.apply(runtime, session.pk, number)
    assert in_container(runtime, session) == held(session) == target
    resizer.apply(runtime, session.pk, number)  # delivered twice
    assert session.events.filter(reason=Reason.RESIZED).count() == 1


def test_less_than_is_in_use_is_refused_with_the_amount(runtime: FaultInjectingRuntime, session: Session) -> None:
    before = held(session)
    use = ContainerUse(cpu_nanoseconds=0, memory_bytes=3 * GIB // 4, cache_bytes=0)
    runtime.change(session.pk, session.attempt, use=use)
    resizer.apply(runtime, session.pk, ask(session, SMALLER))
    assert in_container(runtime, session) == held(session) == before
    event = session.events.get(reason=Reason.RESIZE_REFUSED)
    assert event.detail == "It uses 768 MiB of memory, too much for 512 MiB."


@pytest.mark.parametrize("happens_after", [False, True])
def test_a_failing_engine_leaves_it_to_the_reconciler(
    runtime: FaultInjectingRuntime, session: Session, happens_after: bool
) -> None:
    before = held(session)
    runtime.fail_next("resize", EngineUnreachableError("away"), happens_after=happens_after)
    resizer.apply(runtime, session.pk, ask(session, BIGGER))
    assert held(session) == before.joined(BIGGER)
    reconcile(runtime, session)
    assert in_container(runtime, session) == held(session) == BIGGER
    reconcile(runtime, session)
    assert session.events.filter(reason=Reason.RESIZED).count() == 1


def test_what_was_applied_and_is_then_refused_is_taken_back(runtime: FaultInjectingRuntime, session: Session) -> None:
    before = held(session)
    runtime.fail_next("resize", EngineUnreachableError("away"), happens_after=True)
    resizer.apply(runtime, session.pk, ask(session, SMALLER))
    assert in_container(runtime, session) == SMALLER
    use = ContainerUse(cpu_nanoseconds=0, memory_bytes=3 * GIB // 4, cache_bytes=0)
    runtime.change(session.pk, session.attempt, use=use)
    reconcile(runtime, session)
    assert in_container(runtime, session) == held(session) == before


def test_a_lost_task_is_found_by_the_reconciler(runtime: FaultInjectingRuntime, session: Session) -> None:
    ask(session, SMALLER)
    reconcile(runtime, session)
    assert in_container(runtime, session) == held(session) == SMALLER


def test_a_session_that_ends_meanwhile_is_left_alone(runtime: FaultInjectingRuntime, session: Session) -> None:
    number = ask(session, BIGGER)
    runtime.just_before("resizer", lambda: services.terminate(session, actor=session.owner))
    resizer.apply(runtime, session.pk, number)
    assert not session.events.filter(reason=Reason.RESIZED).exists()
    session.refresh_from_db()
    assert session.status == Status.TERMINATING


def test_a_resize_of_before_is_not_applied(runtime: FaultInjectingRuntime, session: Session) -> None:
    before = in_container(runtime, session)
    number = ask(session, BIGGER)
    resizer.apply(runtime, session.pk, "0" * 32)
    assert (in_container(runtime, session), held(session)) == (before, BIGGER)
    resizer.apply(runtime, session.pk, number)
    assert in_container(runtime, session) == BIGGER


def test_a_long_refusal_is_cut_to_what_the_timeline_holds(runtime: FaultInjectingRuntime, session: Session) -> None:
    runtime.fail_next("resize", ResizeError("x" * 500))
    resizer.apply(runtime, session.pk, ask(session, BIGGER))
    assert session.events.get(reason=Reason.RESIZE_REFUSED).detail == "x" * 300


def test_a_session_without_a_gpu_is_resized(runtime: FaultInjectingRuntime) -> None:
    made = session_in(Status.SCHEDULED)
    start_session(runtime, made.pk, 1)
    target = SessionSize(cpu=1, memory=GIB // 2, fgpu=0)
    made.refresh_from_db()
    resizer.apply(runtime, made.pk, ask(made, target))
    assert in_container(runtime, made) == held(made) == target
