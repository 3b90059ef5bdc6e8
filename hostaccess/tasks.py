"""Celery's periodic task of hosts' credentials, run on the scheduler's queue."""

import logging

from celery import shared_task
from redis.exceptions import RedisError

from hostaccess import redis_users
from hostaccess.models import HostAccess

logger = logging.getLogger(__name__)


@shared_task
def hold_redis_users() -> None:
    """Make the Redis users of hosts anew where Redis has lost them."""
    try:
        redis_users.hold(HostAccess.objects.exclude(redis_digest=""))
    except (RedisError, OSError) as error:
        logger.warning("the Redis users of hosts could not be looked at: %s", error)
