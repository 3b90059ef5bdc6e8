"""The processes of a platform in one thread: hosts with their engines and workers, schedulers, and what is sent."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final
from unittest import mock

from django.db import connection, transaction

from accounts.models import User
from hostworker.agent import starts
from hostworker.app_processes import starter as app_starter
from hostworker.containers import resizer, runner
from hostworker.images import converter
from hostworker.runtime_protocol import ContainerRuntimeError
from resources import kick
from resources.amounts.units import GIB
from resources.gpus.discovery import Device, Machine
from resources.hosts import services as hosts
from resources.models import Host, Image, ResourceGroup
from scheduler.cycle import passes
from sessions import notify, sweeps
from sessions.errors import RejectedError
from sessions.models import Session
from sessions.projects import services as projects
from tests.factories import make_group, make_host, make_image, make_policy, make_user
from tests.virtual import workloads
from tests.virtual.clock import NO_TIME, START, VirtualClock, virtual_time
from tests.virtual.faults import Fault, KilledError, LostDatabaseError, Steps, steps_of_database
from tests.virtual.machines import Process, SchedulerProcess, VirtualHost, VirtualRuntime, VirtualWorker

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
ROUND: Final = timedelta(seconds=10)
MAX_LIFETIME: Final = 2 * HOUR  # of the first user's policy
GROUP_LIFETIME: Final = 6 * HOUR
TIME_LIMIT: Final = HOUR  # of batch sessions
WAIT_LIMIT: Final = 24 * HOUR  # for resources, and parked
LOSS_GRACE: Final = 5 * MINUTE
MAX_HOSTS: Final = 3  # the last one in a group of its own
# What a story changes, each emptied before the tables that it refers to.
CHANGED: Final = (
    *("arrays_arraytask", "arrays_array", "imports_import", "compute_endpoint", "resources_gpuweight"),
    *("deployments_replica", "deployments_deploymentevent", "deployments_stepwiserollout", "deployments_revision"),
    "deployments_deployment",
    *("compute_change", "compute_gpushare", "compute_lease", "compute_sessionevent", "compute_session_depends_on"),
    *(
        "compute_session",
        "compute_cluster",
        "resources_hosthealth",
        "resources_hostimage",
        "resources_gpu",
        "resources_host",
    ),
)
_HAS_WORKLOADS: Final = """
    SELECT EXISTS (SELECT FROM deployments_deployment) OR EXISTS (SELECT FROM arrays_array WHERE ended_at IS NULL)
        OR EXISTS (SELECT FROM imports_import)
"""
_IDLE_HOSTS: Final = """
    SELECT id FROM resources_host host WHERE status = 'READY' AND NOT EXISTS (
        SELECT FROM compute_session WHERE ended_at IS NULL AND (host_id = host.id OR parked_on_id = host.id)
    )
"""
KEPT: Final = ("resources_host", "resources_gpu")  # of these, how they were at first


_TASKS: Final = {
    "start_session": (starts, "begin"),
    "stop_session": (runner, "stop"),
    "resize_session": (resizer, "apply"),
}


class World:
    """A platform of up to three hosts, two schedulers and two users."""

    def __init__(self, clock: VirtualClock, steps: Steps) -> None:
        """Make the rows that all stories begin with; call `reset` before each."""
        self.clock, self.steps = clock, steps
        self._session = connection.connection
        halves = {"fgpu_per_gpu": 2, "max_lifetime": GROUP_LIFETIME, "pending_timeout": WAIT_LIMIT}
        group = make_group(**halves, host_loss_grace=LOSS_GRACE)
        other = make_group(**halves, host_loss_grace=LOSS_GRACE)
        with mock.patch.object(transaction, "on_commit"):
            self._rows = [
                make_host(group=group, gpus=1, cpu=4, memory=8 * GIB, cluster_address="192.0.2.1"),
                make_host(group=group, gpus=2, cpu=6, memory=6 * GIB, cluster_address="192.0.2.2"),
                make_host(group=other, gpus=1, cpu=3, memory=4 * GIB, cluster_address="192.0.2.3"),
            ]
        parks = {"max_parked": 3, "max_parked_time": WAIT_LIMIT, "max_extension": HOUR, "max_priority": 20}
        limited = make_policy(max_sessions=3, fgpu=2500, max_lifetime=MAX_LIFETIME, **parks)
        self.users: list[User] = [make_user(policy=limited), make_user(policy=make_policy(**parks))]
        self.admin = make_user(is_superuser=True)
        self.image: Image = make_image()
        make_image(reference="gpuplatform/python:3.11", environment="Python", version="3.11")  # in which imports fetch
        with connection.cursor() as cursor:
            for table in KEPT:
                cursor.execute(f"CREATE TABLE virtual.first_{table} AS TABLE public.{table}")
            identifiers = ",".join(str(row.pk) for row in self._rows)
            cursor.execute(f"DELETE FROM virtual.first_resources_host WHERE id NOT IN ({identifiers})")
        self.faults: Counter[str] = Counter()

    def reset(self, hosts_count: int) -> None:
        """Begin anew with so many hosts."""
        if connection.connection is not self._session:
            raise RuntimeError("The session of PostgreSQL that has the virtual clock was replaced.")
        kept = ",".join(str(row.pk) for row in self._rows[:hosts_count])
        columns = {"resources_host": "id", "resources_gpu": "host_id"}
        statements = ["SET session_replication_role = replica", *(f"DELETE FROM {table}" for table in CHANGED)]
        statements += [
            f"INSERT INTO {table} SELECT * FROM virtual.first_{table} WHERE {columns[table]} IN ({kept})"
            for table in KEPT
        ]
        statements.append("SET session_replication_role = origin")
        with connection.cursor() as cursor:
            cursor.execute(";".join(statements))
        self.clock.skew = NO_TIME
        self.clock.set(START)
        self.hosts = [
            VirtualHost(row.name, row=row, runtime=VirtualRuntime(self.steps, row.name))
            for row in self._rows[:hosts_count]
        ]
        self.groups: list[ResourceGroup] = list(dict.fromkeys(host.row.group for host in self.hosts))
        self.schedulers = [SchedulerProcess("scheduler 1"), SchedulerProcess("scheduler 2")]
        self.web = Process("web")
        self.kicked_until = START
        self.sick: set[str] = set()  # replicas that answer no probe
        self.errors: list[str] = []  # exceptions that no process may see
        self._serial = itertools.count(1)
        self.steps_told = self.rounds = 0
        self._at_work = self.hosts[0]
        Host.objects.update(heartbeat_at=self.clock.now)

    # What acts

    def act(self, process: Process, do: Callable[..., object], *arguments: Any, fault: Fault | None = None) -> bool:
        """Have a process do something, by its clock, with a fault; return False where it was killed by that."""
        before, self.clock.skew = self.clock.skew, process.skew
        is_alive = True
        with self.steps.of_act(fault):
            try:
                do(*arguments)
            except KilledError:
                is_alive = False
            except (LostDatabaseError, ContainerRuntimeError, RejectedError):
                pass
            except Exception as error:
                self.errors.append(f"{process.name}: {type(error).__name__} in {_name(do)}: {str(error)[:300]}")
            if fault and self.steps.has_happened:
                self.faults[fault.kind.value] += 1
        self.clock.skew = before
        return is_alive

    def act_on_host(self, host: VirtualHost, do: Callable[..., object], *arguments: Any, fault: Fault | None) -> None:
        """Have a host's worker do something, unless it is dead or cut off; a kill stays with it."""
        if host.is_here:
            before, self._at_work = self._at_work, host
            if not self.act(host, do, *arguments, fault=fault):
                self.kill_worker(host)
            self._at_work = before

    def deliver(self, host: VirtualHost, position: int = 0, fault: Fault | None = None, *, stays: bool = False) -> None:
        """Deliver a message of the host's queue; where it stays, it will come once more."""
        if host.queue and host.is_here:
            message = host.queue[position % len(host.queue)]
            if not stays:
                host.queue.remove(message)
            self.act_on_host(host, *message, fault=fault)

    def pull(self, host: VirtualHost, fault: Fault | None = None) -> None:
        """Have the first of the host's pulls made."""
        if host.pulls and host.is_here:
            self.act_on_host(host, host.pulls.pop(0), fault=fault)

    def run_pass(self, which: int, fault: Fault | None = None) -> None:
        """Have a scheduler make a pass over each group."""
        scheduler = self.schedulers[which % 2]
        for group in self.groups:
            with (
                mock.patch.object(passes, "caches", scheduler.caches),
                mock.patch.object(passes, "forecasters", scheduler.forecasters),
            ):
                if not self.act(scheduler, passes.run_group_pass, group.pk, fault=fault):
                    scheduler.restart()

    def sweep(self, which: int = 0, fault: Fault | None = None) -> None:
        """Have a scheduler enforce deadlines."""
        scheduler = self.schedulers[which % 2]
        if not self.act(scheduler, sweeps.enforce_deadlines, fault=fault):
            scheduler.restart()

    def carry_on(self, which: int = 0, fault: Fault | None = None) -> None:
        """Have hosts probe their replicas, and a scheduler see to deployments, arrays and imports, if there are any."""
        with connection.cursor() as cursor:
            cursor.execute(_HAS_WORKLOADS)
            (has_any,) = cursor.fetchone()
        if not has_any:
            return
        for host in self.hosts:
            self.act_on_host(host, workloads.probe, host, self.sick, fault=None)
        scheduler = self.schedulers[which % 2]
        if not self.act(scheduler, workloads.carry_on, fault=fault):
            scheduler.restart()

    def reconcile(self, host: VirtualHost, fault: Fault | None = None) -> None:
        """Have a host's worker reconcile."""
        self.act_on_host(host, host.worker.reconcile, fault=fault)

    def advance(self, by: timedelta) -> None:
        """Let time pass; hosts that can send heartbeats do."""
        self.clock.set(self.clock.now + by)
        for host in self.hosts:
            if host.is_here:
                self.act_on_host(host, host.worker.heartbeat, fault=None)
            elif host.silent_since:
                host.longest_silence = max(host.longest_silence, self.clock.now - host.silent_since)

    def round(self, by: timedelta = ROUND) -> None:
        """Let time pass, and everything that is there do its work once, where there may be some."""
        self.advance(by)
        self.rounds += 1
        self.work()
        self.sweep(self.rounds)
        self.carry_on(self.rounds)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM compute_session WHERE status = 'PENDING' OR preempt_by IS NOT NULL)"
            )
            (may_place,) = cursor.fetchone()
        if may_place:
            self.run_pass(self.rounds)
        self.work()

    def work(self) -> None:
        """Have every host do what it has to, if there may be something."""
        with connection.cursor() as cursor:
            cursor.execute(_IDLE_HOSTS)
            idle = {pk for (pk,) in cursor.fetchall()}
        for host in self.hosts:
            if host.row.pk not in idle or host.queue or host.pulls or host.runtime.states() or host.runtime.is_down:
                self.work_off(host)

    def work_off(self, host: VirtualHost) -> None:
        """Have a host's worker do what it has to, and what comes of that."""
        self.reconcile(host)
        self.empty(host)

    def empty(self, host: VirtualHost) -> None:
        """Deliver all that waits for the host."""
        while host.is_here and (host.queue or host.pulls):
            self.deliver(host)
            self.pull(host)

    # What happens to hosts

    def kill_worker(self, host: VirtualHost) -> None:
        """Kill a host's worker; its containers run on."""
        if not host.is_worker_dead:
            host.is_worker_dead = True
            host.silent_since = host.silent_since or self.clock.now
            host.pulls.clear()
            host.queue = [message for message in host.queue if message[0] in (starts.begin, runner.stop)]
            for key in [key for key in runner._preparing if key[0] in self._sessions_of(host)]:
                runner._preparing.discard(key)

    def cut_off(self, host: VirtualHost) -> None:
        """Cut a host off from the platform; its worker and containers run on."""
        host.is_cut_off = True
        host.silent_since = host.silent_since or self.clock.now

    def bring_back(self, host: VirtualHost) -> None:
        """Have a host reached again, and its worker started where that was dead."""
        if host.is_gone:
            return
        host.is_cut_off = False
        if host.is_worker_dead:
            host.is_worker_dead = False
            host.worker = VirtualWorker(host)
            self.act_on_host(host, self._register, host, fault=None)
        host.silent_since = None
        self.act_on_host(host, host.worker.heartbeat, fault=None)
        self.work_off(host)

    def lose_power(self, host: VirtualHost) -> None:
        """End all containers of a host, and its worker."""
        self.stop_containers(host)
        self.kill_worker(host)

    def stop_containers(self, host: VirtualHost) -> None:
        """End all containers of a host, as a restart of its engine does."""
        for key in host.runtime.states():
            host.runtime.end(*key, exit_code=137)

    def host_of(self, session: Session) -> VirtualHost | None:
        """Return the host that has a session, if any."""
        return next((host for host in self.hosts if host.row.pk == session.host_id), None)

    def next_id(self) -> str:
        """Return the id of a new session, the same each time that a story is told."""
        return f"session{next(self._serial):09d}"

    # What the product sends

    def send_task(self, name: str, args: tuple[Any, ...] = (), queue: str = "", **_: Any) -> None:
        """Take what is sent to Celery."""
        for host in self.hosts:
            if queue == notify.host_queue(host.name):
                module, function = _TASKS[name.removeprefix("hostworker.tasks.")]
                host.queue.append((getattr(module, function), host.runtime, *args))

    def submit(self, owner: int, call: Callable[[], None]) -> None:
        """Take what the worker at work has to pull."""
        self._at_work.pulls.append(call)

    def add(self, key: str, value: bool, seconds: float) -> bool:
        """Set the scheduler's kick, as the cache does."""
        is_new = self.clock.now >= self.kicked_until
        if is_new:
            self.kicked_until = self.clock.now + timedelta(seconds=seconds)
        return is_new

    def delete(self, key: str) -> None:
        """Clear the scheduler's kick."""
        self.kicked_until = self.clock.now

    def _register(self, host: VirtualHost) -> None:
        row = host.row
        devices = tuple(
            Device(uuid=gpu.uuid, index=gpu.index, name=gpu.name, memory=gpu.memory, is_simulated=True)
            for gpu in row.gpus.all()
        )
        hosts.register_host(row.name, Machine(cpu=row.cpu, memory=row.memory, devices=devices), row.group.name)

    def _sessions_of(self, host: VirtualHost) -> set[str]:
        return set(Session.objects.filter(host=host.row).values_list("pk", flat=True))


class _Later:
    """Stands for background threads whose messages no story is about."""

    def run(self, function: Callable[..., object], *arguments: Any) -> None:
        """Do nothing."""


class _AtOnce:
    def run(self, function: Callable[..., object], *arguments: Any) -> None:
        function(*arguments)


@contextmanager
def virtual_world() -> Iterator[World]:
    """Make the world, on this thread's connection to the database, whose other rows are in nobody's way."""
    clock, steps = VirtualClock(), Steps()
    borders: list[tuple[Any, str, Any]] = [
        *((notify, name, _Later()) for name in ("_browsers", "_proxies")),
        (notify, "_hosts", _AtOnce()),
        (starts, "close_old_connections", no_op),
        (starts, "connections", mock.Mock()),
        (app_starter, "warm_up", no_op),
        (app_starter, "resume", no_op),
        (converter, "resume", no_op),
        (sweeps, "fail_stranded_conversions", no_op),  # no story has conversions, or projects
        (projects, "cancel_of_former_members", no_op),
    ]
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(virtual_time(clock))
        for module, name, stand_in in borders:
            stack.enter_context(mock.patch.object(module, name, stand_in))
        world = World(clock, steps)
        for module, name in ((notify, "current_app"), (kick, "current_app"), (kick, "cache")):
            stack.enter_context(mock.patch.object(module, name, world))
        stack.enter_context(mock.patch.object(Session._meta.get_field("id"), "_get_default", world.next_id))
        stack.enter_context(mock.patch.object(starts, "_pulls", return_value=world))
        for patch in workloads.borders(world):
            stack.enter_context(patch)
        stack.enter_context(steps_of_database(steps))
        yield world


def no_op(*_: object) -> None:
    """Do nothing."""


def _name(do: Callable[..., object]) -> str:
    return getattr(do, "__name__", repr(do))
