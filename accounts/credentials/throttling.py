"""The rate limit of token requests."""

import logging

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import ScopedRateThrottle
from rest_framework.views import APIView

logger = logging.getLogger(__name__)


class TokenThrottle(ScopedRateThrottle):
    """Limits token requests per client address. Allows all without Redis: django-axes still counts in the database."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return whether the request is within the limit."""
        try:
            return super().allow_request(request, view)
        except (RedisError, OSError) as error:
            logger.warning("requests for tokens are not throttled: %s", error)
            return True
