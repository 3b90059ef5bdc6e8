"""Request a scheduling pass, or a round with arrays, after the commit of a change that it depends on.

The task is sent by name, since its package is a higher one. A message that cannot be sent is logged and dropped: the
task runs every few seconds anyway.
"""

import logging
from functools import partial
from typing import Final

from celery import current_app
from django.core.cache import cache
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

SCHEDULER: Final = "scheduler.tasks.run_pass"
ARRAYS: Final = "arrays.tasks.advance"
KICKED: Final[dict[str, str]] = {SCHEDULER: "scheduler.kicked", ARRAYS: "scheduler.kicked.arrays"}
KICKED_SECONDS: Final = 5  # limits the delay if a message is lost while the flag is set


def kick_scheduler() -> None:
    """Request a scheduling pass once the current transaction commits; requests for the same pass are merged."""
    transaction.on_commit(partial(_kick, SCHEDULER))


def kick_arrays() -> None:
    """Have arrays reconciled once the current transaction commits; requests for the same round are merged."""
    transaction.on_commit(partial(_kick, ARRAYS))


def clear_kick(task: str = SCHEDULER) -> None:
    """Let later commits request the task again: call it just before that reads anything."""
    try:
        cache.delete(KICKED[task])
    except (RedisError, OSError) as error:
        logger.warning("could not clear the kick: %s; it expires by itself", error)


def _kick(task: str) -> None:
    try:
        if cache.add(KICKED[task], True, KICKED_SECONDS):  # set until the task reads what is there
            current_app.send_task(task, queue="scheduler", declare=())
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("could not request %s: %s; the periodic one runs soon", task, error)
