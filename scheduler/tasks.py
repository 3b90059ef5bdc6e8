"""Celery tasks of the scheduler."""

from concurrent.futures import Future
from functools import lru_cache
from typing import Any

from celery import shared_task
from django.db import close_old_connections

from messaging.background import BackgroundThread
from resources.kick import clear_kick
from scheduler.cycle import passes
from scheduler.cycle.threads import GroupCycles
from scheduler.provisioning import reconciler
from sessions.clusters import settling

_provisioning = BackgroundThread("provisioning")  # providers may take their time, which must not delay scheduling
_running: list[Future[Any]] = []


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


@shared_task
def provision() -> None:
    """Have the hosts of elastic groups made and given back, in a thread; no-op while it is at work."""
    if not any(not each.done() for each in _running):
        _running[:] = [_provisioning.run(_provision)]


def _provision() -> None:
    close_old_connections()
    try:
        reconciler.reconcile_all()
    finally:
        close_old_connections()
