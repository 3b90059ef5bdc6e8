"""A host that loses power under twenty sessions, and stays away for longer than the grace of its group."""

import random
from collections import Counter
from datetime import timedelta
from typing import Final

from resources.models import Host as HostRow
from resources.models import HostStatus
from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import Session
from tests.cluster.checks import asked
from tests.cluster.faults import World
from tests.cluster.people import People
from tests.cluster.site import Host
from tests.factories import make_group
from tests.wait import until

GRACE: Final = timedelta(seconds=15)
RUNNING: Final = 16
STOPPING: Final = 2  # of those that run
STARTING: Final = 4
EXPECTED: Final = {  # how they end, by status and reason
    f"{Status.ERROR} {Reason.HOST_LOST}": RUNNING - STOPPING,
    f"{Status.TERMINATED} {Reason.HOST_LOST}": STOPPING,
    f"{Status.RUNNING} {Reason.STARTED}": STARTING,
}
SHARE: Final = "0.5"
MAX_WAIT_S: Final = 180.0


def kill_host(world: World, host: Host, chance: random.Random) -> dict[str, int]:
    """Return how the sessions have ended, by status and reason, once the host is back and all has settled.

    Most run, some are being stopped and some are to be started when the power goes. The host alone is in a group.
    """
    people = _people_of_its_own(world, host)
    ids = [pk for _ in range(RUNNING) for pk in people.submit(chance, fgpu=SHARE)]
    until(lambda: _count(ids, Status.RUNNING) == RUNNING, seconds=MAX_WAIT_S)
    with host.worker.frozen():
        for session_id in ids[:STOPPING]:
            people.end(chance, session_id)
        ids += [pk for _ in range(STARTING) for pk in people.submit(chance, fgpu=SHARE)]
        until(lambda: _count(ids, Status.SCHEDULED) == STARTING, seconds=MAX_WAIT_S)
        with world.excused(host.name, frozenset({Reason.HOST_LOST})):
            host.lose_power()
            until(lambda: _count(ids, *FINAL) == RUNNING, seconds=MAX_WAIT_S)
    host.boot()
    until(lambda: _count(ids, Status.RUNNING) == STARTING, seconds=MAX_WAIT_S)
    rows = asked(lambda: list(Session.objects.filter(pk__in=ids).values_list("status", "reason")))
    return dict(Counter(f"{status} {reason}" for status, reason in rows))


def _people_of_its_own(world: World, host: Host) -> People:
    """Move the host into a group of its own with a short grace; return people who use that, of the same promises."""
    group = make_group(name=f"only-{host.name}", fgpu_per_gpu=4, host_loss_grace=GRACE)
    HostRow.objects.filter(name=host.name).update(group=group)
    until(lambda: HostRow.objects.filter(name=host.name, status=HostStatus.READY).exists(), seconds=MAX_WAIT_S)
    return world.people.of_group(group)


def _count(ids: list[str], *statuses: Status) -> int:
    return asked(lambda: Session.objects.filter(pk__in=ids, status__in=statuses).count())
