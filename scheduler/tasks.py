"""Celery tasks of the scheduler."""

from functools import lru_cache
from typing import Final

from celery import shared_task

from resources.kick import clear_kick
from scheduler.cycle import passes
from scheduler.cycle.threads import GroupCycles
from scheduler.provisioning import reconciler
from sessions.clusters import settling

POOLS_AT_ONCE: Final = 4  # at work, or waiting for their providers, which must delay neither scheduling nor all others


@lru_cache
def group_cycles() -> GroupCycles:
    """Return the threads in which this process makes passes where there are several groups."""
    return GroupCycles(passes.run_group_pass)


@shared_task
def run_pass() -> None:
    """Have a pass made over each group; kicked on commit of changes that may affect its outcome, and run periodically.

    Clusters are settled before: what their members have to do follows from such changes, too. Where there are several
    groups, each has a thread, and this does not wait for them.
    """
    clear_kick()
    settling.settle_all()
    group_ids = passes.group_ids()
    if len(group_ids) > 1:
        group_cycles().request(group_ids)
    else:
        passes.run_pass()


@lru_cache
def pool_cycles() -> GroupCycles:
    """Return the threads in which this process looks at pools, one of each at a time."""
    return GroupCycles(reconciler.reconcile_pool, POOLS_AT_ONCE, "look at pool")


@shared_task
def provision() -> None:
    """Have the hosts of elastic groups made and given back, in threads; this does not wait for them."""
    pool_cycles().request(reconciler.pool_ids())
