"""The rate limit of each user, and the headers that tell it (draft-ietf-httpapi-ratelimit-headers)."""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

logger = logging.getLogger(__name__)

WINDOW_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Quota:
    """What is left to a user in the present window."""

    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> dict[str, str]:
        """Return the response headers that say it."""
        return {
            "RateLimit-Policy": f'"user";q={self.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"user";r={self.remaining};t={self.reset_seconds}',
        }


class UserThrottle(BaseThrottle):
    """Limits the requests of one user in a window of a minute. Without Redis nothing is limited.

    Requests without a valid token are not counted: they end at 401 before they cost anything.
    """

    quota: Quota | None = None

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return whether the user has requests left, and note in `view.quota` how many."""
        limit: int = settings.COMPUTE_API_REQUESTS_PER_MINUTE
        if not limit or request.user is None or not request.user.is_authenticated:
            return True
        now = time.time()
        window = int(now // WINDOW_SECONDS)
        try:
            used = _count(f"api:{request.user.pk}:{window}")
        except (RedisError, OSError) as error:
            logger.warning("requests to the API are not throttled: %s", error)
            return True
        reset = max(1, math.ceil((window + 1) * WINDOW_SECONDS - now))
        self.quota = view.quota = Quota(limit, max(0, limit - used), reset)
        return used <= limit

    def wait(self) -> float | None:
        """Return the seconds until the next window."""
        return self.quota.reset_seconds if self.quota else None


def _count(key: str) -> int:
    try:
        return int(cache.incr(key))
    except ValueError:  # the first of the window
        cache.add(key, 0, timeout=2 * WINDOW_SECONDS)
        return int(cache.incr(key))
