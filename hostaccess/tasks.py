"""Celery's periodic task of hosts' credentials, run on the scheduler's queue."""

import logging

from celery import shared_task
from redis.exceptions import RedisError

from hostaccess import redis_users
from hostaccess.models import HostAccess
from hostaccess.roles import role_prefix

logger = logging.getLogger(__name__)


@shared_task
def hold_redis_users() -> None:
    """Bring the Redis users of hosts in line where a server lacks them, or has some that were dropped meanwhile."""
    try:
        redis_users.hold(HostAccess.objects.all(), role_prefix())
    except (RedisError, OSError) as error:
        logger.warning("the Redis users of hosts could not be looked at: %s", error)
