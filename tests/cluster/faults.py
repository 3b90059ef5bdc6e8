"""The faults of a campaign: each is one kind, acts on one thing, and mends it again before it returns."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from resources.hosts import services as host_services
from resources.models import Host as HostRow
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.cluster.checks import Excuse, Inspector, asked
from tests.cluster.people import People
from tests.cluster.pulls import SlowRegistry
from tests.cluster.site import Host, Site

GRACE_S: Final = 60  # of the campaign's group: how long a lost host may take to come back
SILENCE_S: Final = 20  # after which a host is lost (resources/hosts/services.py)
SWEEP_S: Final = 6
KILLED: Final = frozenset({Reason.CONTAINER_EXITED, Reason.CONTAINER_LOST, Reason.HOST_LOST})
BEYOND_GRACE: Final = "host cut off for longer than the grace"  # a minute and a half
STEPS: Final = [
    *("before has_image", "before create", "after create", "before start", "after start"),
    *("before stop", "after stop", "before remove", "after remove"),
]


@dataclass(frozen=True)
class World:
    """What faults act on."""

    site: Site
    people: People
    inspector: Inspector
    registry: SlowRegistry
    hosts: list[Host]  # that faults are drawn for

    @contextmanager
    def excused(self, host: str, reasons: frozenset[Reason] = KILLED) -> Iterator[None]:
        """Let sessions of a host end for these reasons, in the block and as its consequence."""
        begun = time.time()
        try:
            yield
        finally:
            self.inspector.excuses.append(Excuse(host, reasons, begun, time.time()))


HostFault = Callable[[World, Host, random.Random], bool | None]  # False: there was nothing that it could act on
SiteFault = Callable[[World, random.Random], bool | None]


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often it is drawn, and what it acts on."""

    name: str
    weight: int
    target: str  # "host", or a lock of the site
    act: HostFault | SiteFault
    is_of_gangs: bool


KINDS: Final[dict[str, Kind]] = {}


def on_host(name: str, weight: int = 4, *, is_of_gangs: bool = False) -> Callable[[HostFault], HostFault]:
    """Register a fault of a host."""

    def register(act: HostFault) -> HostFault:
        KINDS[name] = Kind(name, weight, "host", act, is_of_gangs)
        return act

    return register


def on_site(name: str, target: str, weight: int = 4, *, is_of_gangs: bool = False) -> Callable[[SiteFault], SiteFault]:
    """Register a fault of the platform's own services."""

    def register(act: SiteFault) -> SiteFault:
        KINDS[name] = Kind(name, weight, target, act, is_of_gangs)
        return act

    return register


# Processes of a host


@on_host("host worker killed", 8)
def worker_killed(world: World, host: Host, chance: random.Random) -> None:
    host.worker.kill()
    time.sleep(chance.uniform(0, 2))
    host.worker.start()


@on_host("host worker stopped")
def worker_stopped(world: World, host: Host, chance: random.Random) -> None:
    host.worker.stop()
    time.sleep(chance.uniform(0, 2))
    host.worker.start()


@on_host("host worker frozen")
def worker_frozen(world: World, host: Host, chance: random.Random) -> None:
    with host.worker.frozen():
        time.sleep(chance.uniform(1, 12))


@on_host("host worker slow")
def worker_slow(world: World, host: Host, chance: random.Random) -> None:
    with host.worker.slow():
        time.sleep(chance.uniform(3, 8))


@on_host("host worker killed at a step", 10)
def worker_killed_at_step(world: World, host: Host, chance: random.Random) -> None:
    """Have the worker kill itself at one moment of the next start or stop, which people then ask for."""
    step = chance.choice(STEPS)
    host.crash_file.write_text(step)
    _provoke(world, host, chance, is_stop=step in STEPS[5:])
    _wait_for_crash(host, 10)
    host.worker.start()


@on_host("gateway killed", 3)
def gateway_killed(world: World, host: Host, chance: random.Random) -> None:
    host.gateway.kill()
    host.gateway.start()


@on_host("clock of the host apart")
def clock_apart(world: World, host: Host, chance: random.Random) -> None:
    """Let the host's worker live minutes or hours in the past or in the future for a while."""
    host.worker.kill()
    host.worker.start(clock_offset_s=chance.choice([-7200, -3600, -300, 300, 3600, 7200]))
    time.sleep(chance.uniform(4, 10))
    host.worker.kill()
    host.worker.start()


# Engines


@on_host("engine killed")
def engine_killed(world: World, host: Host, chance: random.Random) -> None:
    with excused_unless_restored(world, host):
        host.engine.kill()
        time.sleep(chance.uniform(0, 3))
        host.engine.start()


@on_host("engine restarted")
def engine_restarted(world: World, host: Host, chance: random.Random) -> None:
    with excused_unless_restored(world, host):
        host.engine.process.stop()
        time.sleep(chance.uniform(0, 3))
        host.engine.start()


@on_host("engine hanging")
def engine_hanging(world: World, host: Host, chance: random.Random) -> None:
    with host.engine.process.frozen():
        time.sleep(chance.uniform(2, 12))


@on_host("NVIDIA runtime broken")
def runtime_broken(world: World, host: Host, chance: random.Random) -> None:
    with host.engine.broken_runtime():
        world.people.submit(chance)
        time.sleep(chance.uniform(1, 4))
    _uncordon(host)


@on_host("disk full")
def disk_full(world: World, host: Host, chance: random.Random) -> None:
    with host.engine.full_disk():
        world.people.submit(chance)
        time.sleep(chance.uniform(2, 8))
    _uncordon(host)


@on_host("pull failing half-way", 5)
def pull_failing(world: World, host: Host, chance: random.Random) -> None:
    """Cut the registry's connections in the middle of a layer; what was pulled is removed everywhere before."""
    with world.registry.failing(chance.randint(1, 9) / 10):
        world.registry.forget(world.site.hosts)
        ids = world.people.submit(chance, command="echo pulled", image=world.registry.image)
        time.sleep(chance.uniform(1, 4))
    for session_id in ids:
        with world.excused(session_id, frozenset({Reason.IMAGE_UNAVAILABLE})):
            pass


@on_host("container killed behind the platform's back")
def container_killed(world: World, host: Host, chance: random.Random) -> None:
    running = Session.objects.filter(host__name=host.name, status=Status.RUNNING)
    sessions = asked(lambda: list(running.order_by("pk").values_list("pk", "container_id")))
    if sessions:
        session_id, container_id = chance.choice(sessions)
        with world.excused(session_id, frozenset({Reason.CONTAINER_EXITED})):
            host.engine.kill_container(container_id)


# The way to a host


@on_host("host cut off for a moment", 5)
def host_cut_off_shortly(world: World, host: Host, chance: random.Random) -> None:
    with host.machine.cut_off():
        time.sleep(chance.uniform(2, 14))


@on_host("host cut off and back within the grace", 2)
def host_cut_off_within_grace(world: World, host: Host, chance: random.Random) -> None:
    with host.machine.cut_off():
        time.sleep(SILENCE_S + SWEEP_S + chance.uniform(1, 8))


@on_host(BEYOND_GRACE, 1)
def host_cut_off_beyond_grace(world: World, host: Host, chance: random.Random) -> None:
    with world.excused(host.name, frozenset({Reason.HOST_LOST})), host.machine.cut_off():
        time.sleep(SILENCE_S + GRACE_S + 2 * SWEEP_S + chance.uniform(1, 8))


@on_host("power loss of a host, a lock held", 4)
def power_lost(world: World, host: Host, chance: random.Random) -> None:
    """Cut the power at a moment of a start or stop, at which the worker holds its session's lock."""
    step = chance.choice([step for step in STEPS if "has_image" not in step])
    host.crash_file.write_text(step)
    with world.excused(host.name):
        _provoke(world, host, chance, is_stop=step in STEPS[5:])
        _wait_for_crash(host, 4)
        host.lose_power()
        time.sleep(chance.uniform(0, 6))
        host.boot()


# The platform's own processes


@on_site("web process killed", "platform")
def web_killed(world: World, chance: random.Random) -> None:
    process = chance.choice(world.site.web)
    process.kill()
    world.people.submit(chance)
    process.start()


@on_site("web process stopped", "platform", 2)
def web_stopped(world: World, chance: random.Random) -> None:
    process = chance.choice(world.site.web)
    process.stop()
    process.start()


@on_site("scheduler killed", "platform", 5)
def scheduler_killed(world: World, chance: random.Random) -> None:
    process = chance.choice(world.site.schedulers)
    process.kill()
    time.sleep(chance.uniform(0, 2))
    process.start()


@on_site("scheduler stopped", "platform", 2)
def scheduler_stopped(world: World, chance: random.Random) -> None:
    process = chance.choice(world.site.schedulers)
    process.stop()
    process.start()


@on_site("scheduler frozen", "platform", 3)
def scheduler_frozen(world: World, chance: random.Random) -> None:
    """Freeze one of two; it may hold the lock of the passes, and PostgreSQL does not know that it stands still."""
    with chance.choice(world.site.schedulers).frozen():
        time.sleep(chance.uniform(1, 8))


@on_site("clock of a scheduler apart", "platform", 3)
def scheduler_clock_apart(world: World, chance: random.Random) -> None:
    process = chance.choice(world.site.schedulers)
    process.kill()
    process.start(clock_offset_s=chance.choice([-7200, -300, 300, 7200]))
    time.sleep(chance.uniform(4, 8))
    process.kill()
    process.start()


@on_site("beat killed", "platform", 3)
def beat_killed(world: World, chance: random.Random) -> None:
    world.site.beat.kill()
    time.sleep(chance.uniform(0, 5))
    world.site.beat.start()


# Redis


@on_site("Redis flushed", "broker", 5)
def redis_flushed(world: World, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        world.site.broker.flush()
        time.sleep(chance.uniform(0, 0.5))


@on_site("Redis restarted", "broker", 4)
def redis_restarted(world: World, chance: random.Random) -> None:
    world.site.broker.process.kill()
    time.sleep(chance.uniform(0, 4))
    world.site.broker.start()


@on_site("Redis hanging", "broker", 3)
def redis_hanging(world: World, chance: random.Random) -> None:
    with world.site.broker.process.frozen():
        time.sleep(chance.uniform(1, 8))


@on_site("Redis silent", "broker", 2)
def redis_silent(world: World, chance: random.Random) -> None:
    with world.site.broker.machine.cut_off():
        time.sleep(chance.uniform(2, 12))


# PostgreSQL


@on_site("PostgreSQL restarted", "database", 4)
def postgres_restarted(world: World, chance: random.Random) -> None:
    world.site.database.restart()


@on_site("PostgreSQL killed", "database", 4)
def postgres_killed(world: World, chance: random.Random) -> None:
    world.site.database.kill()
    time.sleep(chance.uniform(0, 3))
    world.site.database.start()


@on_site("PostgreSQL out of connections", "database", 3)
def postgres_exhausted(world: World, chance: random.Random) -> None:
    with world.site.database.exhausted():
        time.sleep(chance.uniform(2, 6))


@on_site("PostgreSQL silent", "database", 3)
def postgres_silent(world: World, chance: random.Random) -> None:
    with world.site.database.machine.cut_off():
        time.sleep(chance.uniform(2, 14))


@on_site("PostgreSQL failing over without RST", "database", 3)
def postgres_failing_over(world: World, chance: random.Random) -> None:
    """Replace the server while nothing reaches it, so that no client learns of the end of its connection."""
    with world.site.database.machine.cut_off():
        world.site.database.kill()
        world.site.database.start()
        time.sleep(chance.uniform(0, 6))


# Messages


@on_host("tasks lost", 5)
def tasks_lost(world: World, host: Host, chance: random.Random) -> None:
    _with_stolen(world, host, chance)


@on_host("tasks delayed", 5)
def tasks_delayed(world: World, host: Host, chance: random.Random) -> None:
    stolen = _with_stolen(world, host, chance)
    time.sleep(chance.uniform(1, 8))
    world.site.broker.put(f"host.{host.name}", stolen)


@on_host("tasks duplicated", 5)
def tasks_duplicated(world: World, host: Host, chance: random.Random) -> None:
    stolen = _with_stolen(world, host, chance)
    for _ in range(chance.randint(2, 4)):
        world.site.broker.put(f"host.{host.name}", stolen)
        time.sleep(chance.uniform(0, 1.5))


def _with_stolen(world: World, host: Host, chance: random.Random) -> list[bytes]:
    """Return what was sent to a host for three seconds, in which people ask for something, and its worker got not."""
    _provoke(world, host, chance, is_stop=chance.random() < 0.5)
    return world.site.broker.take(f"host.{host.name}", 3)


def _provoke(world: World, host: Host, chance: random.Random, *, is_stop: bool) -> None:
    """Have people submit a session, or end one of this host."""
    if is_stop:
        running = Session.objects.filter(host__name=host.name, status=Status.RUNNING).order_by("pk")
        ids = asked(lambda: [pk for pk in running.values_list("pk", flat=True) if pk in world.people.promises.accepted])
        if ids:
            world.people.end(chance, chance.choice(ids))
            return
    world.people.submit(chance)


def _wait_for_crash(host: Host, seconds: float) -> None:
    """Wait until the worker has met the moment at which it dies, or give that up: nothing may have been started."""
    deadline = time.monotonic() + seconds
    while host.crash_file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    host.crash_file.unlink(missing_ok=True)


@contextmanager
def excused_unless_restored(world: World, host: Host) -> Iterator[None]:
    if host.engine.live_restore:
        yield
        return
    with world.excused(host.name):
        yield


def _uncordon(host: Host) -> None:
    """Put a host back into service that was cordoned for its failures, as an administrator does who has mended it."""
    asked(lambda: host_services.cordon(HostRow.objects.filter(name=host.name), cordoned=False))
