"""Faults that act on gangs: on members that run, and on hosts and services while gangs start."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from hostworker.privileged.cluster_network.network import ClusterNetwork
from sessions.lifecycle import FINAL, HOSTED, UNPLACED, Kind, Reason, Status
from sessions.models import Session
from tests.cluster.checks import asked
from tests.cluster.faults import SILENCE_S, STEPS, SWEEP_S, World, excused_unless_restored, on_host, on_site
from tests.cluster.gangs import PEERS
from tests.cluster.site import Host

OUTSIDE: Final = frozenset({Reason.CONTAINER_EXITED, Reason.CONTAINER_LOST})
START_S: Final = 30.0  # for a gang to be where a fault is to hit it
END_S: Final = 60.0
POLL_S: Final = 0.1
EATER: Final = 'if [ "$RANK" = 1 ]; then exec dd if=/dev/zero of=/dev/null bs=500M count=1; fi; sleep 300'


def shape(chance: random.Random, *, size: int = 0, mode: str = "") -> dict[str, Any]:
    """Return what a cluster is to be."""
    return {
        "size": size or chance.randint(2, 4),
        "mode": mode or chance.choice(["any", "spread"]),
        "shares_gpus": chance.random() < 0.5,
        "max_restarts": chance.choice([0, 0, 1, 3]),
    }


# Members that run


@on_host("main process of a member killed", is_of_gangs=True)
def member_killed(world: World, host: Host, chance: random.Random) -> bool:
    def kill(client: Any, container: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(client.inspect_container(container)["State"]["Pid"], signal.SIGKILL)

    return _done_to_a_member(world, host, chance, kill)


@on_host("container of a member removed", is_of_gangs=True)
def member_removed(world: World, host: Host, chance: random.Random) -> bool:
    return _done_to_a_member(world, host, chance, lambda client, name: client.remove_container(name, force=True))


@on_host("container of a member stopped", is_of_gangs=True)
def member_stopped(world: World, host: Host, chance: random.Random) -> bool:
    return _done_to_a_member(world, host, chance, lambda client, name: client.stop(name, timeout=1))


@on_host("container of a member paused", is_of_gangs=True)
def member_paused(world: World, host: Host, chance: random.Random) -> bool:
    member = _member_on(world, host, chance)
    if member is None:
        return False
    host.engine.ask(lambda client: client.pause(member.container_id))
    time.sleep(chance.uniform(2, 15))
    host.engine.ask(lambda client: client.unpause(member.container_id))
    return True


@on_host("member out of memory", is_of_gangs=True)
def member_out_of_memory(world: World, host: Host, chance: random.Random) -> bool:
    """Have a gang begin whose second member asks for more memory than it has."""
    main = _submit(world, chance, shape(chance) | {"runs_on_all": True}, EATER)
    eaters = asked(lambda: list(Session.objects.filter(cluster=main, rank=1).values_list("pk", flat=True)))
    for eater in eaters:
        with world.excused(eater, frozenset({Reason.OUT_OF_MEMORY, Reason.CONTAINER_EXITED})):
            _wait(Session.objects.filter(pk=main, status__in=FINAL).exists, END_S)
    return bool(eaters)


@on_host("device of a cluster's network deleted", is_of_gangs=True)
def device_deleted(world: World, host: Host, chance: random.Random) -> bool:
    member = _member_on(world, host, chance)
    if member is None or member.cluster is None or member.cluster.network is None:
        return False
    host.machine.shows("ip", "link", "delete", ClusterNetwork.of(member.cluster.network).device)
    return True


@on_host("packet filter flushed under a gang", is_of_gangs=True)
def filter_flushed(world: World, host: Host, chance: random.Random) -> bool:
    member = _member_on(world, host, chance)
    host.machine.shows("iptables", "-w", "-F", PEERS)
    return member is not None


@on_host("hosts of a gang apart", is_of_gangs=True)
def hosts_apart(world: World, host: Host, chance: random.Random) -> bool:
    """Let two hosts not reach each other, though the platform reaches both, while a gang runs and another starts."""
    others = [each for each in world.hosts if each is not host]
    member = _member_on(world, host, chance)
    if not others:
        return False
    with host.machine.apart_from(chance.choice(others).machine):
        _submit(world, chance, _on_all_hosts(world, chance))
        time.sleep(chance.uniform(4, SILENCE_S + SWEEP_S))
    return member is not None


@on_host("host of a gang frozen", is_of_gangs=True)
def host_frozen(world: World, host: Host, chance: random.Random) -> bool:
    """Freeze all of a host, every other time for longer than its silence."""
    member = _member_on(world, host, chance)
    with host.frozen():
        time.sleep(chance.choice([chance.uniform(3, 12), SILENCE_S + SWEEP_S + chance.uniform(1, 6)]))
    return member is not None


@on_host("gang ended while a host is cut off", is_of_gangs=True)
def ended_while_cut_off(world: World, host: Host, chance: random.Random) -> bool:
    member = _member_on(world, host, chance)
    if member is None or member.cluster_id not in world.people.promises.accepted:
        return False
    with host.machine.cut_off():
        world.people.end(chance, member.cluster_id)
        time.sleep(chance.uniform(2, 14))
    return True


# Gangs that start


@on_host("main1 killed as its gang starts", is_of_gangs=True)
def main_killed(world: World, host: Host, chance: random.Random) -> bool:
    main = _submit(world, chance, shape(chance))
    with world.excused(main, OUTSIDE):
        return bool(main) and _wait(lambda: _kill_container(world, main), START_S)


@on_host("host worker killed at a step of a gang's start", is_of_gangs=True)
def worker_killed(world: World, host: Host, chance: random.Random) -> bool:
    host.crash_file.write_text(chance.choice(STEPS[:5]))
    is_starting = bool(_starting_gang(world, host, chance))
    _wait(lambda: not host.crash_file.exists(), 10)
    host.crash_file.unlink(missing_ok=True)
    host.worker.start()
    return is_starting


@on_host("engine killed as a gang starts", is_of_gangs=True)
def engine_killed(world: World, host: Host, chance: random.Random) -> bool:
    with excused_unless_restored(world, host):
        is_starting = bool(_starting_gang(world, host, chance))
        time.sleep(chance.uniform(0, 1))
        host.engine.kill()
        time.sleep(chance.uniform(0, 3))
        host.engine.start()
    return is_starting


@on_host("power loss of a host as a gang starts", is_of_gangs=True)
def power_lost(world: World, host: Host, chance: random.Random) -> bool:
    with world.excused(host.name):
        is_starting = bool(_starting_gang(world, host, chance))
        time.sleep(chance.uniform(0, 1))
        host.lose_power()
        time.sleep(chance.uniform(0, 6))
        host.boot()
    return is_starting


@on_host("database connections of a host cut as a gang starts", is_of_gangs=True)
def connections_cut(world: World, host: Host, chance: random.Random) -> bool:
    is_starting = bool(_starting_gang(world, host, chance))
    for _ in range(chance.randint(1, 4)):
        with suppress(OSError, RuntimeError):
            world.site.database.cut_connections(host.machine.address)
        time.sleep(chance.uniform(0, 0.5))
    return is_starting


@on_host("gang ended as it starts", is_of_gangs=True)
def ended_as_it_starts(world: World, host: Host, chance: random.Random) -> bool:
    main = _starting_gang(world, host, chance)
    if main:
        time.sleep(chance.uniform(0, 1))
        world.people.end(chance, main)
    return bool(main)


@on_site("scheduler killed between plan and commit of a gang", "platform", is_of_gangs=True)
def scheduler_killed(world: World, chance: random.Random) -> bool:
    """Kill every scheduler as one waits for the lock under which it writes the leases of what it has planned."""
    with world.site.database.refusing_leases():
        _submit(world, chance, _on_all_hosts(world, chance))
        is_waiting = _wait(world.site.database.has_waiting_writer, 15)
        for process in world.site.schedulers:
            process.kill()
    for process in world.site.schedulers:
        process.start()
    return is_waiting


@on_site("Redis restarted as a gang starts", "broker", is_of_gangs=True)
def redis_restarted(world: World, chance: random.Random) -> bool:
    is_submitted = bool(_submit(world, chance, _on_all_hosts(world, chance)))
    time.sleep(chance.uniform(0, 1))
    world.site.broker.process.kill()
    time.sleep(chance.uniform(0, 2))
    world.site.broker.start()
    return is_submitted


@on_site("all database connections cut as a gang starts", "database", is_of_gangs=True)
def all_connections_cut(world: World, chance: random.Random) -> bool:
    is_submitted = bool(_submit(world, chance, _on_all_hosts(world, chance)))
    for _ in range(chance.randint(1, 3)):
        time.sleep(chance.uniform(0, 0.5))
        world.site.database.cut_connections()
    return is_submitted


def _on_all_hosts(world: World, chance: random.Random) -> dict[str, Any]:
    return shape(chance, size=max(2, len(world.hosts)), mode="spread" if len(world.hosts) > 1 else "any")


def _starting_gang(world: World, host: Host, chance: random.Random) -> str:
    """Return a gang, one member of which is on its way to this host; "" where it did not come to that."""
    main = _submit(world, chance, _on_all_hosts(world, chance))
    here = Session.objects.filter(cluster=main, host__name=host.name, status__in=HOSTED)
    return main if main and _wait(here.exists, START_S) else ""


def _submit(world: World, chance: random.Random, cluster: dict[str, Any], command: str = "") -> str:
    """Return the first member of a cluster that people submit; "" where the platform did not respond for long."""
    return next(iter(world.people.submit(chance, command, cluster=cluster)), "")


def _member_on(world: World, host: Host, chance: random.Random) -> Session | None:
    """Return a member, on this host, of a gang that runs; one is submitted where there is none."""
    members = Session.objects.filter(cluster__isnull=False, host__name=host.name, status=Status.RUNNING)
    members = members.filter(kind=Kind.INTERACTIVE)
    whole = members.exclude(cluster__members__status__in=[*UNPLACED, *FINAL]).select_related("cluster").order_by("pk")
    if not asked(whole.exists):
        _submit(world, chance, _on_all_hosts(world, chance))
        _wait(whole.exists, START_S)
    found = asked(lambda: list(whole))
    return chance.choice(found) if found else None


def _done_to_a_member(world: World, host: Host, chance: random.Random, act: Callable[[Any, str], None]) -> bool:
    """Do something to the container of a member, which ends by it; return False where there is none."""
    member = _member_on(world, host, chance)
    if member is None:
        return False
    with world.excused(member.pk, OUTSIDE):
        host.engine.ask(lambda client: act(client, member.container_id))
    return True


def _kill_container(world: World, session_id: str) -> bool:
    """Kill the running container of a session; return False where it has none."""
    for host in world.hosts:
        with suppress(OSError):  # its engine is at fault
            for (pk, _), (container_id, state) in host.engine.containers().items():
                if pk == session_id and state == "running":
                    host.engine.kill_container(container_id)
                    return True
    return False


def _wait(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for so long at most; return whether it is so."""
    deadline = time.monotonic() + seconds
    while not asked(is_so):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
