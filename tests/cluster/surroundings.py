"""Faults of what surrounds processes: disks that are full or slow, lossy and slow lines, names, clocks that step."""

import random
import time
from contextlib import suppress
from typing import Final

from psycopg import OperationalError

from tests.cluster.faults import World, on_host, on_site
from tests.cluster.site import Host

HOUR_S: Final = 3600
LOSS: Final = 0.05
DELAY_S: Final = 0.2
DISK_MS: Final = 50
HOST_DISK_MS: Final = 200


@on_site("PostgreSQL's disk full", "database")
def database_disk_full(world: World, chance: random.Random) -> None:
    with world.site.database.full_disk():
        world.people.submit(chance)
        time.sleep(chance.uniform(2, 8))


@on_site("PostgreSQL's disk slow", "database")
def database_disk_slow(world: World, chance: random.Random) -> None:
    with world.site.database.knobs.turned(disk_ms=DISK_MS):
        world.people.submit(chance)
        time.sleep(chance.uniform(4, 10))


@on_site("Redis' disk full", "broker")
def broker_disk_full(world: World, chance: random.Random) -> None:
    with world.site.broker.full_disk():
        world.people.submit(chance)
        time.sleep(chance.uniform(4, 12))


@on_host("disk of the host worker slow")
def host_disk_slow(world: World, host: Host, chance: random.Random) -> None:
    with host.knobs.turned(disk_ms=HOST_DISK_MS):
        world.people.submit(chance)
        time.sleep(chance.uniform(4, 10))


@on_host("clock of the host steps by an hour")
def clock_steps(world: World, host: Host, chance: random.Random) -> None:
    """Set the clock of worker and gateway forward or back while they run, and right again."""
    with host.knobs.turned(clock_s=chance.choice([-HOUR_S, HOUR_S])):
        world.people.submit(chance)
        time.sleep(chance.uniform(4, 12))


@on_host("no name resolved on the host")
def names_away(world: World, host: Host, chance: random.Random) -> None:
    """Have the DNS away while its connections end, so that it has to resolve the names of the services."""
    with host.without_names():
        with suppress(OperationalError):  # PostgreSQL is at fault as well
            world.site.database.cut_connections(host.machine.address)
        world.people.submit(chance)
        time.sleep(chance.uniform(2, 12))


@on_host("five of a hundred packets of the host lost")
def packets_lost(world: World, host: Host, chance: random.Random) -> None:
    with host.machine.losing(LOSS):
        world.people.submit(chance)
        time.sleep(chance.uniform(6, 15))


@on_host("packets of the host late by 200 ms")
def packets_late(world: World, host: Host, chance: random.Random) -> None:
    with host.machine.delayed(DELAY_S):
        world.people.submit(chance)
        time.sleep(chance.uniform(6, 15))
