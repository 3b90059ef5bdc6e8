"""Celery task of the scheduler."""

from functools import lru_cache

from celery import shared_task

from resources.kick import clear_kick
from scheduler.cycle import passes
from scheduler.cycle.threads import GroupCycles


@lru_cache
def group_cycles() -> GroupCycles:
    """Return the threads in which this process makes passes where there are several groups."""
    return GroupCycles(passes.run_group_pass)


@shared_task
def run_pass() -> None:
    """Have a pass made over each group; kicked on commit of changes that may affect its outcome, and run periodically.

    Where there are several groups, each has a thread, and this does not wait for them.
    """
    group_ids = passes.group_ids()
    if len(group_ids) > 1:
        clear_kick()
        group_cycles().request(group_ids)
    else:
        passes.run_pass()
