"""Request a scheduling pass after the commit of a change that scheduling depends on.

The task is sent by name, since the scheduler is a higher package. A message that cannot be sent is logged and dropped:
a periodic pass runs anyway.
"""

import logging
from typing import Final

from celery import current_app
from django.core.cache import cache
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

KICKED: Final = "scheduler.kicked"  # set from the request of a pass until it reads its snapshot
KICKED_SECONDS: Final = 5  # limits the delay if a message is lost while the flag is set


def kick_scheduler() -> None:
    """Request a scheduling pass once the current transaction commits; requests for the same pass are merged."""
    transaction.on_commit(_kick)


def clear_kick() -> None:
    """Let later commits request another pass: call it just before a pass reads its snapshot."""
    try:
        cache.delete(KICKED)
    except (RedisError, OSError) as error:
        logger.warning("could not clear the kick: %s; it expires by itself", error)


def _kick() -> None:
    try:
        if cache.add(KICKED, True, KICKED_SECONDS):
            current_app.send_task("scheduler.tasks.run_pass", queue="scheduler", declare=())
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("could not request a scheduling pass: %s; the periodic one runs soon", error)
