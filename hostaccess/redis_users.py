"""The Redis users of hosts, two for each: one takes the host's messages, the other one sends to the scheduler.

Redis before version 7 knows no right to a command on some keys alone, so that who could both send and take might take
from the scheduler's queue. Redis may lose its users, as it may lose all, and replicas are not told of them: `hold`
brings every server in line, from digests, so that hosts get in after a failover, and revoked ones do not.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import redis
from django.conf import settings
from redis.exceptions import RedisError, ResponseError

from hostaccess.models import HostAccess
from messaging import clients
from messaging.redis_url import sentinel_address

logger = logging.getLogger(__name__)

SENDER: Final = "_send"  # end of the name of the user that sends
PRIORITY: Final = "\x06\x16"  # between a queue's name and a priority, in Celery's transport
TIMEOUT_SECONDS: Final = 3.0
SETINFO: Final = "+client|setinfo"  # Redis 7.0 refuses it, since it has no such command; clients do without
CONNECTING: Final = ("+ping", "+hello", "+client|setname", SETINFO, "+client|getname", "+select", "+info")


class RedisUsersUnavailableError(Exception):
    """Redis takes no users; the message says why."""


def rules(host_name: str) -> dict[str, tuple[str, ...]]:
    """Return what the users of this host may do, by the end of their names, as ACL SETUSER takes it.

    The keys are those of Celery's transport, of `sessions.revocation.withdrawal`
    and `resources.kick`; the channels those of the proxies and the browsers.
    """
    queue = f"host.{host_name}"
    takes = (
        *(
            f"~{queue}",
            f"~{queue}{PRIORITY}*",
            f"~{queue}.unacked*",  # of workers of the version before
            f"~_kombu.binding.{queue}",
            f"~_kombu.binding_permanent.{queue}",
        ),
        *(
            "~_kombu.binding_deadlines",
            "~gp.withdrawn:*",
            "~:1:scheduler.kicked",
            "~:1:scheduler.kicked.arrays",
            "&gp.routes",
            f"&gp.routes.{host_name}",
        ),
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
        for server, is_primary in _servers():
            with nullcontext() if is_primary else _tolerated(server):
                _set(server, access)
    except (RedisError, OSError) as error:
        raise RedisUsersUnavailableError(
            f"Redis refuses to make users: {error}. It must be version 6.2 or newer, and the platform's own user may "
            "need +acl."
        ) from error


def drop_users(role: str) -> None:
    """Drop the users of a host, which ends their connections. Raises RedisUsersUnavailableError."""
    try:
        for server, is_primary in _servers():
            with nullcontext() if is_primary else _tolerated(server):
                server.acl_deluser(role, f"{role}{SENDER}")
    except (RedisError, OSError) as error:
        raise RedisUsersUnavailableError(f"The Redis users of the host could not be dropped: {error}") from error


def hold(accesses: Collection[HostAccess], prefix: str) -> None:
    """Make the users that a server lacks, as after it was restarted, and drop those of hosts that are none any more.

    A server that was away while a host was revoked still has its users. `accesses` are all hosts of this installation,
    those that have not joined included; the names of its roles begin with `prefix`. Raises RedisError, OSError.
    """
    if not accesses and sentinel_address(settings.CHANNEL_REDIS_URL) is None:
        return
    for server, is_primary in _servers():
        with nullcontext() if is_primary else _tolerated(server):
            _bring_in_line(server, accesses, prefix)


def _bring_in_line(server: redis.Redis, accesses: Iterable[HostAccess], prefix: str) -> None:
    known = {words[1]: set(words) for words in (str(line).split() for line in server.acl_list())}
    own = {f"{access.role}{suffix}": access for access in accesses for suffix in ("", SENDER)}
    if gone := [name for name in known if name.startswith(prefix) and name not in own]:
        server.acl_deluser(*gone)
        logger.warning("Redis users of revoked hosts were dropped: %s", ", ".join(gone))
    lacking = (access for name, access in own.items() if not known.get(name, set()) >= _marks(name, access))
    for access in {access.pk: access for access in lacking if access.redis_digest}.values():
        _set(server, access)
        if HostAccess.objects.filter(pk=access.pk, redis_digest=access.redis_digest).exists():
            logger.info("host %s: its Redis users were made anew", access.name)
        else:  # revoked since it was read, after which nobody looks where it was the last host
            server.acl_deluser(access.role, f"{access.role}{SENDER}")


def _marks(user: str, access: HostAccess) -> set[str]:
    """Return by what it is known that a user is as this version makes it: its digest, and its channels."""
    rule = rules(access.name)[user.removeprefix(access.role)]
    return {f"#{access.redis_digest}", *(word for word in rule if word.startswith("&"))}


def _set(client: redis.Redis, access: HostAccess) -> None:
    for suffix, rule in rules(access.name).items():
        words = ("reset", "resetchannels", "on", f"#{access.redis_digest}", *rule)
        name = f"{access.role}{suffix}"
        try:
            client.execute_command("ACL SETUSER", name, *words)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if SETINFO not in str(error):
                raise
            others = (word for word in words if word != SETINFO)
            client.execute_command("ACL SETUSER", name, *others)  # type: ignore[no-untyped-call]


def _servers() -> Iterator[tuple[redis.Redis, bool]]:
    """Yield a client of each server, and whether it is the primary. Raises RedisError, OSError."""
    timeouts = {"socket_connect_timeout": TIMEOUT_SECONDS, "socket_timeout": TIMEOUT_SECONDS}
    for number, server in enumerate(clients.server_clients(settings.CHANNEL_REDIS_URL, **timeouts)):
        yield server, number == 0


@contextmanager
def _tolerated(server: redis.Redis) -> Iterator[None]:
    """Log what goes wrong with a replica in the block: `hold` brings it in line once it is back."""
    try:
        yield
    except (RedisError, OSError) as error:
        logger.warning("the Redis users of hosts could not be set on the replica %s: %s", server, error)
