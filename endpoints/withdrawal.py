"""Takes a session's routes out of every proxy before its container goes: the engine gives its address to the next."""

import logging
import secrets
import time
from typing import Final

from redis.exceptions import RedisError

from sessions import notify
from sessions.models import Endpoint

logger = logging.getLogger(__name__)

WITHDRAW_SECONDS: Final = 1.0  # the longest that an ending session waits for proxies that do not answer
ANSWER_SECONDS: Final = 10  # after which answers that nobody reads any more are gone


def withdraw(session_id: str) -> bool:
    """Have every proxy forget the session's routes; return whether all that were told said so within a second.

    A session that never had an app has no routes: nobody is told or waited for. A proxy that cannot be told finds out
    by itself when it next reads the routes; see `feed`.
    """
    if not Endpoint.objects.filter(session=session_id).exists():
        return True
    answers = f"gp.withdrawn:{secrets.token_hex(8)}"
    deadline = time.monotonic() + WITHDRAW_SECONDS
    try:
        missing = notify.publish({"withdraw": session_id, "reply": answers})
        while missing and (left := deadline - time.monotonic()) > 0:
            missing -= bool(notify.proxies_redis().blpop([answers], timeout=left))
    except (RedisError, OSError) as error:
        logger.warning("session %s: could not tell the proxies that it ends: %s", session_id, error)
        return False
    if missing:
        logger.warning("session %s: %d proxies did not say that they have withdrawn it", session_id, missing)
    return not missing
