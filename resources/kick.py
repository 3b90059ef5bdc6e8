"""Asks for a scheduling pass: whatever can change a pass's outcome does, as it commits.

The scheduler is named, never imported. A kick that cannot be sent is logged and dropped: the periodic pass makes up for
it.
"""

import logging
from typing import Final

from celery import current_app
from django.core.cache import cache
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

KICKED: Final = "scheduler.kicked"  # set while a pass is queued that has not read its snapshot yet
KICKED_SECONDS: Final = 5  # a kick that got lost with its flag set holds others back no longer than this


def kick_scheduler() -> None:
    """Run a scheduling pass once the current transaction commits; kicks that wait for the same pass become one."""
    transaction.on_commit(_kick)


def clear_kick() -> None:
    """Let the next commit ask for a pass of its own, since this one reads its snapshot from now on."""
    try:
        cache.delete(KICKED)
    except (RedisError, OSError) as error:
        logger.warning("could not clear the kick: %s; it expires by itself", error)


def _kick() -> None:
    try:
        if cache.add(KICKED, True, KICKED_SECONDS):
            current_app.send_task("scheduler.tasks.run_pass", queue="scheduler")
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("could not kick the scheduler: %s; the periodic pass will make up for it", error)
