"""Two schedulers and two host workers race on one queue while users end sessions: nothing is over-allocated or lost."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from hostworker.agent import reconciler
from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime_protocol import ContainerPhase
from resources.amounts.units import GIB
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import Lease, Session, SessionEvent
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_group, make_host, make_policy, make_user
from tests.invariants import broken_amounts, broken_invariants
from tests.wait import SECONDS

SESSIONS: Final = 200
BATCH: Final = 20
ENDED: Final = 60  # by their users, at random moments

pytestmark = pytest.mark.django_db(transaction=True)


class RecordingRuntime(MemoryRuntime):
    """An engine that notes each container that it really started."""

    def __init__(self, host: str, url: str) -> None:
        """Begin with nothing noted."""
        super().__init__("installation", host, url)
        self.starts: Counter[str] = Counter()

    def start(self, session: str, attempt: int, announce: Callable[[str], None] = lambda address: None) -> None:
        """Start the container and note it if it was not running before."""
        with self.engine.lock:
            container = self.find(session, attempt)
            is_new = container is not None and container.state.phase is ContainerPhase.CREATED
            super().start(session, attempt, announce)
            self.starts[session] += is_new


class Race:
    """The contestants' threads; the first failure in any of them ends the race."""

    def __init__(self) -> None:
        """Begin with nobody running."""
        self.is_over = threading.Event()

    def loop(self, act: Callable[[], object]) -> None:
        """Act again and again until the race is over."""
        try:
            while not self.is_over.is_set():
                act()
        finally:
            self.is_over.set()
            connection.close()


@contextmanager
def racing(race: Race, contestants: list[Callable[[], object]]) -> Iterator[None]:
    """Let each contestant act in a thread of its own until the block ends."""
    with ThreadPoolExecutor(len(contestants)) as threads:
        running = [threads.submit(race.loop, contestant) for contestant in contestants]
        try:
            yield
        finally:
            race.is_over.set()
        for each in running:
            each.result()


def watch() -> None:
    """Look at the sums while everybody is at work."""
    assert broken_amounts() == []


def worker(runtime: MemoryRuntime, host: Host) -> Callable[[], None]:
    """Return what one worker of the host does: all that is to be started or stopped there, as the rows say."""

    def act() -> None:
        reconciler.reconcile(runtime, host, lambda function, *arguments: function(*arguments))

    return act


def settle(race: Race, is_settled: Callable[[], bool]) -> None:
    """Wait until it is so, for some minutes at most."""
    deadline = time.monotonic() + 4 * SECONDS
    while not is_settled():
        assert not race.is_over.wait(0.02), "a contestant failed"
        assert time.monotonic() < deadline, "it never settled"


def test_duplicate_schedulers_and_workers_share_one_queue(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    group, url = make_group(fgpu_per_gpu=4), f"memory://{uuid4()}"
    hosts = [make_host(group=group, gpus=2, cpu=16, memory=64 * GIB), make_host(group=group, gpus=1, cpu=8)]
    runtimes = [RecordingRuntime(host.name, url) for host in hosts]
    users = [make_user(), make_user(policy=make_policy(max_sessions=5))]
    race, chance, whim = Race(), random.Random(1), random.Random(2)
    to_be_ended: list[str] = []

    def submit() -> None:
        for _ in range(SESSIONS // BATCH):
            order = make_launch_request(
                hosts[0], cpu=chance.randint(1, 2), fgpu=chance.randrange(0, 1500, 250), count=BATCH
            )
            made = services.submit(chance.choice(users), order)
            to_be_ended.extend(session.pk for session in chance.sample(made, ENDED * BATCH // SESSIONS))

    def end_one() -> None:
        if to_be_ended:
            position = whim.randrange(len(to_be_ended))
            session = Session.objects.select_related("owner", "host").get(pk=to_be_ended.pop(position))
            services.terminate(session, actor=session.owner)

    workers = [worker(runtime, host) for runtime, host in zip(runtimes, hosts, strict=True) for _ in range(2)]
    with racing(race, [run_pass, run_pass, *workers, watch, end_one]):
        submit()
        settle(race, lambda: is_settled(to_be_ended))
    placed = 1
    while placed:  # what was placed at the finish, and what the last end before it made room for
        for act in workers:
            act()
        placed = run_pass()

    assert broken_invariants() == []
    starts = sum((runtime.starts for runtime in runtimes), Counter[str]())
    came_to_run = SessionEvent.objects.filter(new_status=Status.RUNNING).values_list("session", flat=True)
    assert set(starts.values()) == {1}
    assert set(came_to_run) <= starts.keys()
    running = Session.objects.filter(status=Status.RUNNING)
    containers = {state.session: state.phase for runtime in runtimes for state in runtime.containers()}
    assert containers == dict.fromkeys(running.values_list("pk", flat=True), ContainerPhase.RUNNING)
    assert set(running.values_list("attempt", flat=True)) == {1}
    assert Session.objects.count() == SESSIONS
    assert Session.objects.filter(status__in=FINAL).count() == ENDED
    assert set(Session.objects.filter(status__in=FINAL).values_list("reason", flat=True)) == {Reason.USER_REQUEST}
    assert Lease.objects.count() == running.count() > 0
    for session in Session.objects.filter(status=Status.PENDING):
        assert session.reason in (Reason.NO_CAPACITY, Reason.USER_LIMIT)
        assert session.detail


def is_settled(to_be_ended: list[str]) -> bool:
    """Return whether all that was asked for is done, and every waiting session has been told why."""
    under_way = Session.objects.filter(status__in=[Status.SCHEDULED, Status.PREPARING, Status.TERMINATING])
    untold = Session.objects.filter(status=Status.PENDING, reason=Reason.SUBMITTED)
    ended = Session.objects.filter(status__in=FINAL).count()
    return not to_be_ended and ended == ENDED and not under_way.exists() and not untold.exists()
