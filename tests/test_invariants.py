"""Hundreds or thousands of random operations, crashes and losses; after each, every invariant of the platform holds."""

import logging
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import hypothesis
import pytest
from django.db import connection, transaction
from django.db.models import F
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from hostworker.agent import reconciler
from hostworker.containers import resizer, runner
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerRuntimeError,
    EngineUnreachableError,
    ImageUnavailableError,
    StartError,
)
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from resources.amounts.units import GIB, MIB
from resources.hosts import services as hosts
from resources.models import Gpu, Host
from scheduler.cycle.passes import run_pass
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import FINAL, Status
from sessions.models import Lease, Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from sessions.sweeps import enforce_deadlines
from tests.factories import make_group, make_host, make_image, make_policy, make_user
from tests.invariants import broken_invariants

STEPS: Final = 400  # in each example: many, since setting up and winding up cost as much as forty

OFTEN: Final = ["start", "stop", "resize", "reconcile"]
AT_TIMES: Final = ["submit", "run_pass", "terminate", "container_exits", "host_is_back"]
SELDOM: Final = [
    "time_passes",
    "force_end",
    "container_vanishes",
    "host_falls_silent",
    "host_is_cordoned_or_its_gpu_pulled",
]
OPERATIONS: Final = OFTEN * 5 + AT_TIMES * 3 + SELDOM

done: Counter[str] = Counter()


class WorkerDied(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


STEPS_OF_WORKERS: Final = ["ensure_image", "create", "start", "stop", "resize", "logs", "remove"]
ERRORS: Final = [
    EngineUnreachableError("away"),
    StartError("no"),
    ImageUnavailableError("gone"),
    WorkerDied(),
    WorkerDied(),
]
Fault = tuple[str, Any, bool] | None


class Platform(RuleBasedStateMachine):
    """Three hosts in two groups, two users, and everything that can happen to their sessions."""

    def __init__(self) -> None:
        """Begin in a transaction of its own, which is rolled back at the end."""
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        halves, thirds = make_group(fgpu_per_gpu=2), make_group(fgpu_per_gpu=3)
        self.hosts = [
            make_host(group=halves, gpus=1, cpu=4, memory=8 * GIB),
            make_host(group=halves, gpus=2, cpu=6, memory=6 * GIB),
            make_host(group=thirds, gpus=1, cpu=3, memory=4 * GIB),
        ]
        self.runtimes = {host.pk: FaultInjectingRuntime() for host in self.hosts}
        self.silent: set[int] = set()
        limits = make_policy(max_sessions=4, max_pending=6, fgpu=3500, max_lifetime=timedelta(hours=1), cpu=6)
        self.users = [make_user(policy=make_policy(max_pending=6)), make_user(policy=limits)]
        self.admin = make_user(is_superuser=True)
        self.submitted: list[str] = []
        self.place = 0  # of the next operation in the story, less one
        self.image = make_image()

    def teardown(self) -> None:
        """Bring every host back and end every session: nothing is stuck, nothing is left over."""
        try:
            self._end_everything()
        finally:
            transaction.set_rollback(True)
            self.transaction.__exit__(None, None, None)

    @rule(seed=st.integers(0, 2**32 - 1))
    def operate(self, seed: int) -> None:
        """Do one thing; everything about it follows from the seed and its place in the story.

        Hypothesis begins with the example in which every seed is 0: the place alone makes that one a story.
        """
        done["operations"] += 1
        self.place += 1
        chance = random.Random((self.place << 32) + seed)
        fault = (chance.choice(STEPS_OF_WORKERS), chance.choice(ERRORS), chance.random() < 0.5)
        operation = getattr(self, chance.choice(OPERATIONS))
        operation(chance.getrandbits(16), chance.getrandbits(16), fault if chance.random() < 0.4 else None)

    # What people and the scheduler do

    def submit(self, which: int, amount: int, fault: Fault) -> None:
        fgpu = 100 * (amount % 41)
        order = services.LaunchRequest(
            image=self.image,
            resource_group=self.hosts[which % 3].group,
            cpu=1 + amount % 3,
            memory=(1 + which % 3) * GIB,
            shared_memory=64 * MIB,
            fgpu=fgpu,
            count=1 + which % 2,
        )
        try:
            sessions = services.submit(self.users[amount % 2], order)
        except RejectedError:
            self._count("refused")
        else:
            self.submitted += [session.pk for session in sessions]
            self._count("submitted")

    def run_pass(self, which: int, amount: int, fault: Fault) -> None:
        self._count("passes")
        done["placed"] += run_pass()

    def terminate(self, which: int, amount: int, fault: Fault) -> None:
        if session := self._session(which):
            services.terminate(session, actor=self.users[which % 2])
            self._count("terminated")

    def force_end(self, which: int, amount: int, fault: Fault) -> None:
        if session := self._session(which):
            services.force_end(session, actor=self.users[which % 2])
            self._count("forced")

    def resize(self, which: int, amount: int, fault: Fault) -> None:
        """Ask for another size, and half the time have the host apply it at once."""
        session = self._session(which)
        if session is None:
            return
        size = SessionSize(
            cpu=1 + amount % 4, memory=(1 + which % 4) * GIB, fgpu=session.fgpu and 100 + amount % 17 * 100
        )
        try:
            session = resizing.resize(session, size, actor=self.admin)
        except RejectedError:
            self._count("resize refused")
        else:
            self._count("resize asked for")
        stored = StoredResize.of(session)
        if stored and amount % 2 and session.host_id not in self.silent:
            runtime = self.runtimes[session.host_id or 0]
            self._with_fault(runtime, fault, resizer.apply, runtime, session.pk, stored.id)
            self._count("resize delivered")

    # What reaches the host workers, once, late or twice, and how they fail

    def start(self, which: int, amount: int, fault: Fault) -> None:
        self._deliver(start_session, which, amount % 8 == 0, fault)

    def stop(self, which: int, amount: int, fault: Fault) -> None:
        self._deliver(runner.stop, which, False, fault)

    def reconcile(self, which: int, amount: int, fault: Fault) -> None:
        host = self.hosts[which % 3]
        if host.pk in self.silent:
            return
        if self._with_fault(self.runtimes[host.pk], fault, self._reconcile, host) and fault is None:
            self._check_containers(host)

    # What happens to containers, engines and hosts

    def container_exits(self, which: int, amount: int, fault: Fault) -> None:
        host = self.hosts[which % 3]
        runtime = self.runtimes[host.pk]
        running = [state for state in runtime.containers() if state.phase == ContainerPhase.RUNNING]
        if not running:
            return
        key = running[which % len(running)].session, running[which % len(running)].attempt
        runtime.end(*key, exit_code=amount % 2, out_of_memory=amount % 3 == 0)
        (state,) = (state for state in runtime.containers() if (state.session, state.attempt) == key)
        if amount % 4 and host.pk not in self.silent:
            runner.note_exit(runtime, state)
        self._count("exited")

    def container_vanishes(self, which: int, amount: int, fault: Fault) -> None:
        runtime = self.runtimes[self.hosts[which % 3].pk]
        if containers := runtime.containers():
            state = containers[which % len(containers)]
            runtime.lose_container(state.session, state.attempt)
            self._count("vanished")

    def host_falls_silent(self, which: int, amount: int, fault: Fault) -> None:
        host = self.hosts[which % 3]
        self.silent.add(host.pk)
        Host.objects.filter(pk=host.pk).update(heartbeat_at=F("heartbeat_at") - timedelta(minutes=1))
        self._count("silent")

    def host_is_back(self, which: int, amount: int, fault: Fault) -> None:
        host = self.hosts[which % 3]
        if host.pk in self.silent:
            self.silent.discard(host.pk)
            hosts.heartbeat(host)
            self._reconcile(host)
            self._check_containers(host)
            self._count("back")

    def host_is_cordoned_or_its_gpu_pulled(self, which: int, amount: int, fault: Fault) -> None:
        host = self.hosts[which % 3]
        if which % 2:
            hosts.cordon(Host.objects.filter(pk=host.pk), cordoned=amount % 3 == 0)
        else:
            Gpu.objects.filter(host=host, index=0).update(is_present=amount % 3 != 0)
        self._count("cordoned or pulled")

    def time_passes(self, which: int, amount: int, fault: Fault) -> None:
        """Let one session and one host grow older, then enforce the deadlines."""
        by = timedelta(minutes=(1, 15, 40, 90)[amount % 4])
        if session := self._session(which):
            Session.objects.filter(pk=session.pk).update(status_at=F("status_at") - by, started_at=F("started_at") - by)
        Host.objects.filter(pk=self.hosts[which % 3].pk).update(lost_at=F("lost_at") - by)
        enforce_deadlines()
        self._count("swept")

    @invariant()
    def all_invariants_hold(self) -> None:
        """Ask the database, its own guards first, as each commit would; then let the messages go."""
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        assert broken_invariants() == []
        for runtime in self.runtimes.values():
            assert max(Counter(state.session for state in runtime.containers()).values(), default=0) <= 1
        callbacks, connection.run_on_commit = connection.run_on_commit, []
        for _, callback, *_ in callbacks:
            callback()

    def _count(self, what: str) -> None:
        done[what] += 1

    def _session(self, which: int) -> Session | None:
        """Return one of the younger sessions, ended ones included."""
        if not self.submitted:
            return None
        youngest = self.submitted[-16:]
        return Session.objects.select_related("owner", "host").get(pk=youngest[which % len(youngest)])

    def _deliver(self, act: Callable[..., None], which: int, is_late: bool, fault: Fault) -> None:
        session = self._session(which)
        if session is None or session.host_id is None or session.host_id in self.silent:
            return
        runtime = self.runtimes[session.host_id]
        self._with_fault(runtime, fault, act, runtime, session.pk, session.attempt - is_late)
        self._count(f"{act.__name__} delivered")

    def _with_fault(
        self, runtime: FaultInjectingRuntime, fault: Fault, act: Callable[..., None], *arguments: Any
    ) -> bool:
        """Act while `fault` waits to happen on the engine; return whether the worker outlived it."""
        if fault:
            operation, error, happens_after = fault
            runtime.fail_next(operation, error, happens_after=happens_after)
        try:
            act(*arguments)
        except WorkerDied:
            self._count("worker died")
            return False
        except ContainerRuntimeError:
            return False
        finally:
            runtime.engine.failures.clear()
        return True

    def _reconcile(self, host: Host) -> None:
        reconciler.reconcile(self.runtimes[host.pk], host, self._take_up)
        hosts.declare_ready(host)
        self._count("reconciled")

    def _take_up(self, act: Callable[..., None], *arguments: Any) -> None:
        act(*arguments)
        self._count(f"{act.__name__} taken up")

    def _check_containers(self, host: Host) -> None:
        """After an pause_background_work reconciliation the host runs exactly what its rows say."""
        states = {(state.session, state.attempt, state.phase) for state in self.runtimes[host.pk].containers()}
        rows = Session.objects.filter(host=host).exclude(status__in=FINAL).values_list("pk", "attempt", "status")
        assert states == {(pk, attempt, ContainerPhase.RUNNING) for pk, attempt, _ in rows}
        assert {status for _, _, status in rows} <= {Status.RUNNING}
        for session in Session.objects.filter(host=host, status=Status.RUNNING):
            spec = self.runtimes[host.pk].spec(session.pk, session.attempt)
            assert session.resize is None
            assert spec
            assert (spec.cpu, spec.memory_bytes) == (session.cpu, session.memory)
            assert sum(gpu.share_milli for gpu in spec.gpus) == session.fgpu

    def _end_everything(self) -> None:
        for host in self.hosts:
            hosts.heartbeat(host)
            self._reconcile(host)
        run_pass()
        for session in Session.objects.exclude(status__in=FINAL):
            services.terminate(session, actor=self.users[0])
        for host in self.hosts:
            self._reconcile(host)
            assert self.runtimes[host.pk].containers() == []
        assert not Session.objects.exclude(status__in=FINAL).exists()
        assert not Lease.objects.exists()
        assert broken_invariants() == []
        connection.run_on_commit = []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("examples", "operations"),
    [
        pytest.param(1, 300, id="three hundred"),
        pytest.param(6, 2_000, id="two thousand", marks=pytest.mark.long(minutes=1)),
    ],
)
def test_every_invariant_holds_after_each_random_operation(
    examples: int,
    operations: int,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    caplog.set_level(logging.ERROR)
    done.clear()
    run_state_machine_as_test(Platform, settings=_thorough(examples))
    with capsys.disabled():
        print(f"\n{dict(done.most_common())}")  # noqa: T201
    assert done["operations"] >= operations


def _thorough(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[hypothesis.Phase.generate],  # to shrink hundreds of steps takes longer than all campaigns
    )
