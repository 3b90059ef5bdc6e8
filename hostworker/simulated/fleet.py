"""Many simulated hosts in one process: what a host worker does for one host, done by a few threads for all of them.

Everything but the engine is the product's own: heartbeats, reconciliation, starts and stops by messages, the record of
use, all at the pace of real hosts. So the database and Redis see what as many real hosts would send them.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, cast

from celery import current_app
from django.db import close_old_connections, connections
from django.db.models import Prefetch
from kombu import Queue
from kombu.mixins import ConsumerMixin

from hostworker.agent import due_work
from hostworker.agent.acts import ACTS
from hostworker.agent.worker import HostWorker
from hostworker.containers import runner, specs
from hostworker.gpus.gpu_readings import GpuReadings
from hostworker.gpus.watchdog import SessionGpuUse
from hostworker.runtime_protocol import Runtime
from hostworker.simulated.runtime import SimulatedContainers, SimulatedRuntime
from resources import clock
from resources.gpus.discovery import Machine
from resources.hosts.services import register_host
from resources.models import Host, Installation
from sessions.lifecycle import Status
from sessions.models import GpuShare, Session
from sessions.notify import host_queue

logger = logging.getLogger(__name__)

THREADS: Final = 12  # of loops, and as many of messages; the connections to the database are as many at most
PROGRAM_SECONDS: Final = 1.0
STOP_SECONDS: Final = 0.2
PREFETCHED: Final = 64  # messages


@dataclass(frozen=True, slots=True)
class SimulatedWatch:
    """What a watchdog sees of the GPUs of a host where nobody can take more than their share. Implements GpuWatch."""

    runtime: SimulatedRuntime

    def poll(self) -> None:
        """Do nothing."""

    def readings(self) -> Mapping[str, SessionGpuUse]:
        return self.runtime.gpu_uses()


class SimulatedHost:
    """One host: its row, its engine, and what its worker does again and again."""

    def __init__(self, host: Host, installation: str, registry: SimulatedContainers) -> None:
        self.host = host
        self.runtime = SimulatedRuntime(installation, host.name, registry)
        runtime = cast(Runtime, self.runtime)
        self._worker = HostWorker(
            runtime, host, watchdog=SimulatedWatch(self.runtime), readings=GpuReadings(host, self.runtime)
        )
        self.loops = [*self._worker.loops, (self.end_programs, PROGRAM_SECONDS)]

    def restore(self) -> None:
        """Let the sessions go on that an earlier process left; a constant number of queries."""
        running = Session.objects.filter(host=self.host, status=Status.RUNNING).exclude(container_id="")
        related = running.select_related("image", "resource_group", "lease", "owner__policy", "project__policy")
        shares = Prefetch("lease__shares", GpuShare.objects.select_related("gpu"))
        for session in related.defer("owner__password").prefetch_related(shares):
            age = clock.now() - (session.started_at or clock.now())
            self.runtime.restore(specs.spec_of(session), session.container_id, age.total_seconds())

    def end(self) -> None:
        """Wait for what the loops have begun."""
        self._worker.end()

    def end_programs(self) -> None:
        """End the sessions whose batch programs are done."""
        for state in self.runtime.end_finished():
            runner.note_exit(cast(Runtime, self.runtime), state)


class SimulatedFleet(ConsumerMixin):
    """Runs hosts until `end`."""

    def __init__(self, hosts: Sequence[SimulatedHost]) -> None:
        self.connection = current_app.connection_for_read()
        self._hosts = {host_queue(each.host.name): each for each in hosts}
        self._loops = ThreadPoolExecutor(THREADS, thread_name_prefix="loop")
        self._messages = ThreadPoolExecutor(THREADS, thread_name_prefix="message")
        self._clock = threading.Thread(target=self._keep_time, name="clock", daemon=True)
        self._due: list[tuple[float, int, Callable[[], None], float]] = []
        self._changed = threading.Condition()
        self._serial = itertools.count()

    def begin(self) -> None:
        """Start the loops, the first calls of each spread over its time; then `run` takes messages until `end`."""
        now, count = time.monotonic(), len(self._hosts)
        for number, host in enumerate(self._hosts.values()):
            for function, seconds in host.loops:
                self._due.append((now + seconds * number / count, next(self._serial), function, seconds))
        heapq.heapify(self._due)
        self._clock.start()

    def end(self) -> None:
        """Stop; the sessions go on when the fleet is started again."""
        with self._changed:
            self.should_stop = True
            self._changed.notify()
        self._clock.join()
        for pool in (self._loops, self._messages):
            pool.shutdown(cancel_futures=True)
        for host in self._hosts.values():
            host.end()

    def get_consumers(self, consumer_class: Any, channel: Any) -> list[Any]:
        """Return the consumer of the queues of all hosts; called by kombu."""
        queues = [Queue(name, no_declare=True) for name in self._hosts]
        return [consumer_class(queues, callbacks=[self._take], accept=["json"], prefetch_count=PREFETCHED)]

    def _take(self, body: Any, message: Any) -> None:
        """Do what a message says. It is acknowledged before: the loops repeat what is lost."""
        message.ack()
        host = self._hosts.get(message.delivery_info["routing_key"])
        act = ACTS.get(message.headers.get("task", "").removeprefix("hostworker.tasks."))
        if host and act:
            self._messages.submit(self._once, _followed(host, act), *body[0])

    def _keep_time(self) -> None:
        """Give each call to the pool when it is due."""
        while not self.should_stop:
            with self._changed:
                wait = self._due[0][0] - time.monotonic() if self._due else STOP_SECONDS
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                _, _, function, seconds = heapq.heappop(self._due)
            self._loops.submit(self._repeat, function, seconds)

    def _repeat(self, function: Callable[[], None], seconds: float) -> None:
        self._once(function)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), function, seconds))
            self._changed.notify()

    def _once(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            close_old_connections()
            function(*arguments)
        except Exception:
            logger.exception("%s failed", function.__qualname__)
        finally:
            connections.close_all()


def _followed(host: SimulatedHost, act: Callable[..., None]) -> Callable[..., None]:
    @wraps(act)
    def follow(*arguments: object) -> None:
        with due_work.follows(host.host.name):
            act(host.runtime, *arguments)

    return follow


def register(
    names: Sequence[str], machine: Callable[[str], Machine], groups: Sequence[str], gateway_url: str
) -> list[Host]:
    """Register hosts with these names, whose machines are what `machine` returns, in the groups by turns."""
    by_turns = zip(names, itertools.cycle(groups))
    return [register_host(name, machine(name), group, gateway_url=gateway_url) for name, group in by_turns]


def simulate(hosts: Sequence[Host], registry: SimulatedContainers) -> SimulatedFleet:
    """Return the fleet of these hosts, whose sessions go on."""
    key = Installation.current_key()
    made = [SimulatedHost(host, key, registry) for host in hosts]
    for each in made:
        each.restore()
    return SimulatedFleet(made)
