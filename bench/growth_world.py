"""Measures a minute of many simulated hosts on the database of the settings, which is empty; see bench/growth.py."""

import asyncio
import heapq
import json
import re
import resource
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final
from unittest import mock

from django.conf import settings
from django.db import close_old_connections, connection
from django.test import Client, override_settings
from kombu.transport.redis import Transport as RedisTransport

from accounts.models import User
from arrays.tasks import advance as advance_arrays
from bench.load_roles import uses
from bench.load_world import GROUP, people, sessions
from bench.page_world import sign_in
from deployments import tasks as deployments
from endpoints.tasks import enforce_deadlines as end_access
from hostaccess.tasks import hold_redis_users
from hostworker.agent import due_work, starts
from hostworker.containers import runner
from hostworker.gpus import gpu_readings, usage_recorder
from hostworker.simulated.fleet import SimulatedHost, simulate
from hostworker.simulated.runtime import SimulatedContainers
from hostworker.storage import disk_watch
from hostworker.terminals import session_keys
from messaging.background import finish_all
from messaging.clients import async_client
from notifications.tasks import announce_ends
from resources.amounts.units import GIB
from resources.hosts import services as hosts_services
from resources.models import Gpu, Host, HostStatus, ResourceGroup
from scheduler.tasks import run_pass
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session, SessionQuerySet
from sessions.notify import host_queue, proxies_redis, routes_channel
from sessions.tasks import enforce_deadlines, enforce_idle_rules

GPUS: Final = 8
SESSIONS: Final = 10  # of each host, eight of which run
MINUTE: Final = 60.0  # within which the hosts begin; costs are given for one
WARM_SECONDS: Final = 15.0  # the longest pause that a host makes beside those of its loops, but for whole minutes
WINDOW_SECONDS: Final = 15.0  # that are measured: the calls of each loop are spread over its pause by the hosts
SPREAD: Final = (5**0.5 - 1) / 2  # by its multiples, which are not in step with the order in which hosts began
CHANGED: Final = 100  # hosts at most on which a session ends, while all listen
BY_CLOCK: Final = (due_work, gpu_readings, usage_recorder, session_keys, disk_watch)
MESSAGE_SECONDS: Final = 10.0  # for which consumers of messages are watched
BESIDE: Final = "beside"  # name of the thread that these have
SETTLE_SECONDS: Final = 2.0  # in which what was sent arrives, or connections are closed
POLL_SECONDS: Final = 0.2
TIMES: Final = 3
PAGES: Final = {"page_sessions": "/sessions/?tab=others", "page_hosts": "/hosts/"}
PERIODIC: Final[dict[str, tuple[Callable[[], object], float]]] = {  # task, seconds between its runs by beat
    "pass": (run_pass, 10),
    "deadlines": (enforce_deadlines, 5),
    "idle_rules": (enforce_idle_rules, 30),
    "ends": (announce_ends, 5),
    "deployments": (deployments.reconcile, 2),
    "scaling": (deployments.scale, 2),
    "arrays": (advance_arrays, 2),
    "access": (end_access, 5),
    "redis_users": (hold_redis_users, 10),
}
STATEMENT: Final = re.compile(r"^@@LOG:  (?:statement|execute [^:]*): ", re.MULTILINE)
FLUSH: Final = "SELECT 0 FROM pg_stat_force_next_flush()"  # of what this connection has done
OF_DATABASE: Final = "FROM pg_stat_database WHERE datname = current_database()"
COUNTERS: Final = {  # what the server has counted so far
    "rows_read": f"SELECT tup_returned {OF_DATABASE}",
    "rows_written": f"SELECT tup_inserted + tup_updated + tup_deleted {OF_DATABASE}",
    "wal_bytes": "SELECT wal_bytes::float FROM pg_stat_wal",
}

Costs = dict[str, float]
Due = list[tuple[float, int, Callable[[], None], float]]  # when, serial number, what, pause


class SetClock:
    """Stands for the module `time` where loops of hosts ask how long ago something was."""

    def __init__(self) -> None:
        self.now = 1e6

    def monotonic(self) -> float:
        """Return the time that was set."""
        return self.now


class Meter:
    """What the servers have done since it was asked last."""

    def __init__(self, postgres: int) -> None:
        self._postgres = postgres
        self._redis = proxies_redis()
        self.log = settings.COMPUTE_VAR_DIR / "postgres" / "log"
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET full_page_writes = off")  # or WAL depends on when a checkpoint was
            cursor.execute("ALTER SYSTEM SET log_line_prefix = '@@'")
            cursor.execute("ALTER SYSTEM SET log_parameter_max_length = 0")
            cursor.execute("SELECT pg_reload_conf()")

    @contextmanager
    def measures(self, costs: Costs, prefix: str) -> Iterator[None]:
        """Add, as costs with this prefix, what the block costs both servers, but for the number of statements."""
        before = self._now()
        yield
        finish_all()
        costs |= {f"{prefix}_{name}": round(value - before[name], 3) for name, value in self._now().items()}

    @contextmanager
    def counts(self, costs: Costs, name: str) -> Iterator[None]:
        """Add the number of statements that the block has PostgreSQL execute, by the server's own log."""
        self._log_statements("all")
        begun = self.log.stat().st_size
        yield
        finish_all()
        self._log_statements("none")
        with self.log.open() as file:
            file.seek(begun)
            costs[name] = sum(bool(STATEMENT.match(line)) for line in file) - 2  # its own

    def _log_statements(self, which: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
            cursor.execute("SELECT pg_reload_conf()")
            time.sleep(0.3)

    def _now(self) -> Costs:
        found: dict[str, Any] = self._redis.info("all")
        asked = sum(each["calls"] for name, each in found.items() if name.startswith("cmdstat_") and "info" not in name)
        _value(FLUSH)
        return {
            "postgres_cpu_seconds": uses({"": self._postgres})[""].cpu_seconds,
            **{name: _value(query) for name, query in COUNTERS.items()},
            "redis_commands": asked,
            "redis_bytes": found["total_net_input_bytes"] + found["total_net_output_bytes"],
        }


def main(hosts: int, postgres: int) -> None:
    """Measure, and print one JSON object as the last line; `postgres` is the process id of the server."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    people(1, 1)
    fleet = registered(hosts)
    meter, clock = Meter(postgres), SetClock()
    costs: Costs = {}
    with by_clock(clock):
        due = begun(fleet, clock)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")  # as the server does by itself after a while
        live(due, clock, WARM_SECONDS)
        with (
            scaled(costs, MINUTE / WINDOW_SECONDS) as window,
            meter.measures(window, "host"),
            meter.counts(window, "host_statements"),
        ):
            live(due, clock, WINDOW_SECONDS)
        periodic(meter, costs)
        changes(fleet, meter, costs)
    pages(costs)
    print(json.dumps(costs))


@contextmanager
def scaled(costs: Costs, factor: float) -> Iterator[Costs]:
    """Give a place for costs, which are added, multiplied by this factor, once the block ends."""
    found: Costs = {}
    yield found
    costs |= {name: round(value * factor, 3) for name, value in found.items()}


def periodic(meter: Meter, costs: Costs) -> None:
    """Measure a minute of what the scheduler does again and again, and the statements of one round of it."""
    costs["periodic_postgres_cpu_seconds"] = 0.0
    for name, (task, seconds) in PERIODIC.items():
        task()
        runs: Costs = {}
        with meter.measures(runs, name):
            costs[f"{name}_cpu_seconds"] = round(cpu_seconds(task) * MINUTE / seconds, 4)
        costs["periodic_postgres_cpu_seconds"] += runs[f"{name}_postgres_cpu_seconds"] / TIMES * MINUTE / seconds
    with meter.counts(costs, "periodic_statements"):
        for task, _ in PERIODIC.values():
            task()


def registered(count: int) -> list[SimulatedHost]:
    """Return so many hosts whose GPUs are all held by sessions, with others waiting; one of each host has an app."""
    group = ResourceGroup.objects.get(name=GROUP)
    rows = Host.objects.bulk_create(
        Host(name=f"sim-{number:04}", group=group, status=HostStatus.READY, cpu=64, memory=512 * GIB)
        for number in range(count)
    )
    Gpu.objects.bulk_create(
        Gpu(uuid=f"GPU-{host.pk}-{index}", host=host, index=index, name="A", memory=24 * GIB, is_simulated=True)
        for host in rows
        for index in range(GPUS)
    )
    sessions(SESSIONS * count, 0)
    Session.objects.filter(status=Status.RUNNING).update(ssh_public_key="ssh-ed25519 A")  # as after their first seconds
    Endpoint.objects.bulk_create(
        Endpoint(session=session, app="jupyter", port=8888, state=EndpointState.READY) for session in firsts()
    )
    return list(simulate(rows, SimulatedContainers())._hosts.values())


def firsts() -> SessionQuerySet:
    """Return a running session of each host."""
    return Session.objects.filter(status=Status.RUNNING).order_by("host_id", "pk").distinct("host_id")


@contextmanager
def by_clock(clock: SetClock) -> Iterator[None]:
    """Have the loops of hosts go by the clock during the block, in which no host is lost, however long it takes."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(runner, "seconds_since_start", return_value=float("inf")))
        stack.enter_context(mock.patch.object(hosts_services, "SILENCE", timedelta(days=1)))  # by real time
        for module in BY_CLOCK:
            stack.enter_context(mock.patch.object(module, "time", clock))
        yield


def begun(fleet: list[SimulatedHost], clock: SetClock) -> Due:
    """Do everything once on each host, one after another within a minute; return what is due after it, and when."""
    start = clock.now
    due: Due = []
    for number, host in enumerate(fleet):
        clock.now = start + MINUTE * number / len(fleet)
        for function, pause in host.loops:
            _once(function)
            due.append((start + MINUTE + pause * (number * SPREAD % 1), len(due), function, pause))
    clock.now = start + MINUTE
    heapq.heapify(due)
    return due


def live(due: Due, clock: SetClock, seconds: float) -> None:
    """Do what is due in so many seconds, in its order."""
    end = clock.now + seconds
    while due[0][0] < end:
        clock.now, serial, function, pause = due[0]
        _once(function)
        heapq.heapreplace(due, (clock.now + pause, serial, function, pause))
    clock.now = end


def _once(function: Callable[[], None]) -> None:
    close_old_connections()
    function()
    close_old_connections()


def changes(fleet: list[SimulatedHost], meter: Meter, costs: Costs) -> None:
    """Measure messages: consumers that wait, then a session of each host that ends, and the next one that starts.

    Of many hosts CHANGED are measured for all.
    """
    counted = [0]
    waiting: Costs = {}
    server, count = proxies_redis(), len(fleet)
    consumers, followers = (_consume(host) for host in fleet), (_follow(host, counted) for host in fleet)
    with (
        beside(consumers, lambda: int(server.info("clients")["blocked_clients"]) >= count),
        meter.measures(waiting, "waiting"),
    ):
        time.sleep(MESSAGE_SECONDS)
    costs |= {name: value * MINUTE / MESSAGE_SECONDS for name, value in waiting.items() if "redis" in name}
    with (
        scaled(costs, max(1, count / CHANGED)) as changed,
        beside(followers, lambda: len(server.pubsub_channels(routes_channel("*"))) >= count),
    ):
        with meter.measures(changed, "change"), meter.counts(changed, "change_statements"):
            change(fleet)
        time.sleep(SETTLE_SECONDS)
        changed["change_route_messages"] = counted[0]


@contextmanager
def beside(coroutines: Iterable[Coroutine[None, None, None]], are_ready: Callable[[], bool]) -> Iterator[None]:
    """Run these in a thread during the block, which begins once they are ready. Raises what they fail with."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=BESIDE)
    thread.start()
    running = [asyncio.run_coroutine_threadsafe(each, loop) for each in coroutines]
    try:
        while not are_ready():
            for each in running:
                if each.done():
                    each.result()  # raises what it has failed with
            time.sleep(POLL_SECONDS)
        yield
    finally:
        for each in running:
            each.cancel()
        time.sleep(SETTLE_SECONDS)  # in which they close their connections
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _consume(host: SimulatedHost) -> None:
    """Wait for messages as the worker of a host does."""
    async with async_client(settings.CHANNEL_REDIS_URL) as client:
        while True:
            await client.brpop([host_queue(host.host.name)], timeout=RedisTransport.brpop_timeout)


async def _follow(host: SimulatedHost, counted: list[int]) -> None:
    """Follow the routes as the gateway of a host does, which asks the database once for each message."""
    async with async_client(settings.CHANNEL_REDIS_URL) as client, client.pubsub() as channel:
        await channel.subscribe(routes_channel(host.host.name))
        async for message in channel.listen():
            if message["type"] == "message":
                counted[0] += 1
                if reply := json.loads(message["data"]).get("reply"):
                    await client.rpush(reply, 1)


def change(fleet: list[SimulatedHost]) -> None:
    """End one session of each of CHANGED hosts, have the next ones placed, and start them."""
    by_id: dict[int | None, SimulatedHost] = {host.host.pk: host for host in fleet}
    for session in list(firsts()[:CHANGED]):
        services.terminate(session, actor=session.owner)
        _act(by_id[session.host_id], runner.stop, session)
    run_pass()
    for session in Session.objects.filter(status=Status.SCHEDULED):
        _act(by_id[session.host_id], starts.begin, session)


def _act(host: SimulatedHost, act: Callable[..., object], session: Session) -> None:
    """Have the host's worker do what a message about the session says."""
    with override_settings(COMPUTE_HOST_NAME=host.host.name):
        act(host.runtime, session.pk, session.attempt)
        finish_all()


def pages(costs: Costs) -> None:
    """Measure the processor time of the web process for the lists of an administrator."""
    client = Client(headers={"host": "localhost"})
    client.cookies[settings.SESSION_COOKIE_NAME] = sign_in(User.objects.filter(is_superuser=True)[0])
    for name, path in PAGES.items():

        def ask(path: str = path) -> None:
            response = client.get(path)
            assert response.status_code == 200, (path, response.status_code)

        ask()
        costs[f"{name}_cpu_seconds"] = round(cpu_seconds(ask), 4)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of this process that `work` takes in TIMES runs."""
    found = []
    for _ in range(TIMES):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def _value(query: str) -> float:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return float(cursor.fetchone()[0])
