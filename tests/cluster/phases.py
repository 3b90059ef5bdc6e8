"""Kills of each kind of process in the middle of a rollout, an import, a park, a resume and a resize."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from accounts.models import User
from deployments import services as deployments
from deployments.models import Deployment, DeploymentState
from imports import services as imports
from imports.models import Import, ImportState
from imports.requests import ImportRequest
from resources.models import Image
from sessions.errors import RejectedError
from sessions.lifecycle import Kind, Status
from sessions.models import Session
from tests.cluster.checks import asked
from tests.cluster.faults import World, excused_unless_restored, on_host, on_site
from tests.cluster.site import Host
from tests.cluster.workloads import NAME, revision
from tests.tiny_image import TINY_IMAGE

UNDER_WAY_S: Final = 60.0
POLL_S: Final = 0.1

Killed = Callable[[World, random.Random], AbstractContextManager[None]]
Begin = Callable[[World, Host | None, random.Random], bool]  # False: there was nothing to begin


def _rollout(world: World, host: Host | None, chance: random.Random) -> bool:
    def begin() -> bool:
        row = Deployment.objects.live().get(name=NAME)
        image = Image.objects.get(reference=TINY_IMAGE)
        try:
            deployments.new_revision(row, revision(image, chance.randint(2, 10_000)), actor=row.owner)
        except RejectedError:
            return False
        return True

    return asked(begin) and _wait(Deployment.objects.filter(name=NAME, state=DeploymentState.UPDATING).exists)


def _import(world: World, host: Host | None, chance: random.Random) -> bool:
    def begin() -> str:
        owner: User = Deployment.objects.get(name=NAME).owner
        return str(imports.look(owner, ImportRequest(address=f"https://github.com/o/r{chance.randint(1, 10**9)}")).pk)

    pk = asked(begin)
    states = chance.choice([[ImportState.WAITING], [ImportState.FETCHING, ImportState.DONE]])
    return _wait(Import.objects.filter(pk=pk, state__in=states).exists)


def _park(world: World, host: Host | None, chance: random.Random) -> bool:
    return _act(world, host, chance, Status.RUNNING, "park")


def _resume(world: World, host: Host | None, chance: random.Random) -> bool:
    return _act(world, host, chance, Status.PARKED, "resume") or _park(world, host, chance)


def _resize(world: World, host: Host | None, chance: random.Random) -> bool:
    return _act(world, host, chance, Status.RUNNING, "resize", {"cpu": chance.randint(1, 2)})


def _act(
    world: World,
    host: Host | None,
    chance: random.Random,
    status: Status,
    verb: str,
    body: dict[str, int] | None = None,
) -> bool:
    """Have people ask for something of one of their sessions, on this host if it is about one."""
    rows = Session.objects.filter(status=status, kind=Kind.INTERACTIVE).order_by("pk")
    if host is not None:
        rows = rows.filter(**{"parked_on__name" if status == Status.PARKED else "host__name": host.name})
    mine = [pk for pk in asked(lambda: list(rows.values_list("pk", flat=True))) if pk in world.people.promises.accepted]
    if mine:
        world.people.act(chance, chance.choice(mine), verb, body)
    return bool(mine)


def _wait(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + UNDER_WAY_S
    while not asked(is_so):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


@contextmanager
def _web_killed(world: World, chance: random.Random) -> Iterator[None]:
    process = chance.choice(world.site.web)
    process.kill()
    yield
    process.start()


@contextmanager
def _schedulers_killed(world: World, chance: random.Random) -> Iterator[None]:
    for process in world.site.schedulers:
        process.kill()
    yield
    for process in world.site.schedulers:
        process.start()


@contextmanager
def _database_killed(world: World, chance: random.Random) -> Iterator[None]:
    world.site.database.kill()
    yield
    world.site.database.start()


@contextmanager
def _broker_killed(world: World, chance: random.Random) -> Iterator[None]:
    world.site.broker.process.kill()
    yield
    world.site.broker.start()


PHASES: Final[dict[str, Begin]] = {
    "a rollout": _rollout,
    "an import": _import,
    "a park": _park,
    "a resume": _resume,
    "a resize": _resize,
}
OF_SITE: Final = {
    "web process": ("platform", _web_killed),
    "schedulers": ("platform", _schedulers_killed),
    "PostgreSQL": ("database", _database_killed),
    "Redis": ("broker", _broker_killed),
}


def _register(phase: str, begin: Begin) -> None:
    for name, (target, killed) in OF_SITE.items():

        @on_site(f"{name} killed in {phase}", target, 2)
        def act(world: World, chance: random.Random, killed: Killed = killed) -> bool:
            has_begun = begin(world, None, chance)
            time.sleep(chance.uniform(0, 1.5))
            with killed(world, chance):
                time.sleep(chance.uniform(0, 3))
            return has_begun

    @on_host(f"host worker killed in {phase}", 2)
    def worker(world: World, host: Host, chance: random.Random) -> bool:
        has_begun = begin(world, host, chance)
        time.sleep(chance.uniform(0, 1.5))
        host.worker.kill()
        time.sleep(chance.uniform(0, 2))
        host.worker.start()
        return has_begun

    @on_host(f"engine killed in {phase}", 2)
    def engine(world: World, host: Host, chance: random.Random) -> bool:
        with excused_unless_restored(world, host):
            has_begun = begin(world, host, chance)
            time.sleep(chance.uniform(0, 1.5))
            host.engine.kill()
            time.sleep(chance.uniform(0, 2))
            host.engine.start()
        return has_begun


for _phase, _begin in PHASES.items():
    _register(_phase, _begin)
