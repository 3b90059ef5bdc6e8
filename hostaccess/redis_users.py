"""The Redis users of hosts, two for each: one takes the host's messages, the other one sends to the scheduler.

Redis before version 7 knows no right to a command on some keys alone, so that who could both send and take might take
from the scheduler's queue. Redis may lose its users, as it may lose all: `hold` makes them anew, from digests.
"""

import logging
from collections.abc import Iterable
from typing import Final

import redis
from django.conf import settings
from redis.exceptions import RedisError

from hostaccess.models import HostAccess

logger = logging.getLogger(__name__)

SENDER: Final = "_send"  # end of the name of the user that sends
PRIORITY: Final = "\x06\x16"  # between a queue's name and a priority, in Celery's transport
TIMEOUT_SECONDS: Final = 3.0
CONNECTING: Final = ("+ping", "+hello", "+client|setname", "+client|setinfo", "+client|getname", "+select", "+info")


class RedisUsersUnavailableError(Exception):
    """Redis takes no users; the message says why."""


def rules(host_name: str) -> dict[str, tuple[str, ...]]:
    """Return what the users of this host may do, by the end of their names, as ACL SETUSER takes it.

    The keys are those of Celery's transport (the queue, what was taken and is not finished), of `sessions.withdrawal`
    and `resources.kick`; the channels those of the proxies and the browsers.
    """
    queue = f"host.{host_name}"
    takes = (
        *(
            f"~{queue}",
            f"~{queue}{PRIORITY}*",
            f"~{queue}.unacked*",
            f"~_kombu.binding.{queue}",
            f"~_kombu.binding_permanent.{queue}",
        ),
        *("~_kombu.binding_deadlines", "~gp.withdrawn:*", "~:1:scheduler.kicked", "&gp.routes"),
        *("+brpop", "+blpop", "+lpush", "+rpush", "+llen", "+expire", "+pexpire", "+set", "+get", "+del", "+exists"),
        *("+zadd", "+zrem", "+zrange", "+zrevrangebyscore", "+zrangebyscore", "+hset", "+hget", "+hdel"),
        *("+sadd", "+smembers", "+scard", "+srem", "+eval", "+evalsha", "+script|load"),
        *("+multi", "+exec", "+watch", "+unwatch", "+discard", "+publish", "+subscribe", "+unsubscribe"),
        *CONNECTING,
    )
    sends = ("~scheduler", "&asgi__group__*", "+lpush", "+publish", "+multi", "+exec", *CONNECTING)
    return {"": takes, SENDER: sends}


def set_users(access: HostAccess) -> None:
    """Make the users of the host, or bring them in line; drop them where it has not joined.

    Raises RedisUsersUnavailableError.
    """
    try:
        with _client() as client:
            _set(client, access)
    except (RedisError, OSError) as error:
        raise RedisUsersUnavailableError(
            f"Redis refuses to make users: {error}. It must be version 6.2 or newer, and the platform's own user may "
            "need +acl."
        ) from error


def drop_users(role: str) -> None:
    """Drop the users of a host, which ends their connections. Raises RedisUsersUnavailableError."""
    try:
        with _client() as client:
            client.acl_deluser(role, f"{role}{SENDER}")
    except (RedisError, OSError) as error:
        raise RedisUsersUnavailableError(f"The Redis users of the host could not be dropped: {error}") from error


def hold(accesses: Iterable[HostAccess]) -> None:
    """Make the users that Redis lacks, as after it was restarted. Raises RedisError, OSError."""
    joined = [access for access in accesses if access.redis_digest]
    if not joined:
        return
    with _client() as client:
        known = set(client.acl_users())
        for access in joined:
            if not {access.role, f"{access.role}{SENDER}"} <= known:
                _set(client, access)
                logger.info("host %s: its Redis users were made anew", access.name)


def _set(client: redis.Redis, access: HostAccess) -> None:
    for suffix, rule in rules(access.name).items():
        words = ("reset", "resetchannels", "on", f"#{access.redis_digest}", *rule)
        client.execute_command("ACL SETUSER", f"{access.role}{suffix}", *words)  # type: ignore[no-untyped-call]


def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.CHANNEL_REDIS_URL, socket_connect_timeout=TIMEOUT_SECONDS, socket_timeout=TIMEOUT_SECONDS
    )
