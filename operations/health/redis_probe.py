"""Check whether Redis responds, with one attempt and a short timeout."""

from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from messaging import clients

TIMEOUT_SECONDS: Final = 2


def version(url: str) -> str | None:
    """Return the version of the Redis at `url`, or None if it does not respond."""
    once = Retry(NoBackoff(), 0)
    try:
        with clients.client(
            url, retry=once, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        ) as client:
            return str(client.info("server")["redis_version"])
    except (redis.RedisError, OSError):
        return None
