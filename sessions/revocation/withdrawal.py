"""Removes a session's routes from every proxy before its container stops: the engine reuses the container's address."""

import logging
from typing import Final

from redis.exceptions import RedisError

from sessions import notify
from sessions.models import Endpoint

logger = logging.getLogger(__name__)

WITHDRAW_TIMEOUT_SECONDS: Final = 3.0  # of a proxy that is busy, or dead unnoticed


def withdraw(session_id: str) -> bool:
    """Have every proxy remove the session's routes; return whether all subscribers acknowledged within the timeout.

    Those of a later attempt are offered again. A session without endpoints has no routes, so nothing is sent. A
    proxy that misses the message finds out when it next reads the routes; see `endpoints/routing/feed.py`.
    """
    attempt = Endpoint.objects.filter(session=session_id).values_list("session__attempt", flat=True).first()
    if attempt is None:
        return True
    try:
        missing = notify.ask({"withdraw": session_id, "attempt": attempt}, WITHDRAW_TIMEOUT_SECONDS)
    except (RedisError, OSError) as error:
        logger.warning("session %s: could not withdraw its routes from the proxies: %s", session_id, error)
        return False
    if missing:
        logger.warning("session %s: %d proxies did not acknowledge the withdrawal of its routes", session_id, missing)
    return not missing
