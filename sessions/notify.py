"""What happens after a commit beside the kick: tell a host, the browsers, the proxies. Messages only, no decisions.

Tasks go by name, so that this module does not know them. A message that cannot be sent is logged and dropped: the row
is the truth, and the periodic tasks make up for it.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Final

import redis
from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

logger = logging.getLogger(__name__)

SUPERADMINS: Final = "superadmins"
ROUTES_CHANNEL: Final = "gp.routes"  # of Redis; endpoints/feed.py says what its messages mean

DIRECT_SEND_LIMIT: Final = 20  # messages; beyond it hosts get theirs in the background, and browsers fetch everything
ALL: Final = ""  # in place of a session: many have changed

_hosts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notify-hosts")
_proxies = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notify-proxies")
_browsers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notify")  # keeps them off the way of a launch


def user_group(user_id: int) -> str:
    """Return the channel-layer group that the browsers of this user listen to."""
    return f"user.{user_id}"


def login_group(login: str) -> str:
    """Return the channel-layer group of the websockets that this login session, named by its digest, has opened."""
    return f"login.{login}"


def account_group(user_id: int) -> str:
    """Return the channel-layer group of the websockets that any login session of this user has opened."""
    return f"account.{user_id}"


def host_queue(host_name: str) -> str:
    """Return the Celery queue that the worker of this host consumes."""
    return f"host.{host_name}"


def tell_host(host_name: str, task: str, *arguments: object) -> None:
    """Send `hostworker.tasks.<task>` with these arguments to the host's worker once the current transaction commits."""
    send = partial(_send_task, f"hostworker.tasks.{task}", arguments, host_queue(host_name))
    transaction.on_commit(send)


def tell_hosts(task: str, starts: Iterable[tuple[str, str, int]]) -> None:
    """Send the task for each (host, session, attempt) as `tell_host` does; many are sent in the background.

    A message costs about a millisecond, and the next pass need not wait for thousands of them.
    """
    messages = [(f"hostworker.tasks.{task}", (pk, attempt), host_queue(host)) for host, pk, attempt in starts]
    if len(messages) > DIRECT_SEND_LIMIT:
        transaction.on_commit(partial(_hosts.submit, _send_tasks, messages))
    elif messages:
        transaction.on_commit(partial(_send_tasks, messages))


def sessions_changed(changed: Iterable[tuple[str, int]]) -> None:
    """Tell the browsers of the owners and superadmins, after the commit, to fetch these (session, owner) again."""
    transaction.on_commit(partial(_browsers.submit, _broadcast, tuple(changed)))


def login_changed(login: str) -> None:
    """Have the websockets of this login session, named by its digest, look after the commit whether it still holds."""
    transaction.on_commit(partial(_browsers.submit, _tell_group, login_group(login)))


def account_changed(user_id: int) -> None:
    """Have the websockets of this user look after the commit what the user may still do."""
    transaction.on_commit(partial(_browsers.submit, _tell_group, account_group(user_id)))


def routes_changed(session_id: str) -> None:
    """Have every proxy read the routes of this session again once the current transaction commits."""
    tell_proxies({"session": session_id})


def tell_proxies(message: Mapping[str, object]) -> None:
    """Send the message to every process that keeps routes once the current transaction commits."""
    transaction.on_commit(partial(_proxies.submit, _tell_proxies, message))


def publish(message: Mapping[str, object]) -> int:
    """Send the message to every process that keeps routes; return how many got it. Raises RedisError, OSError."""
    return int(proxies_redis().publish(ROUTES_CHANNEL, json.dumps(message)))


@lru_cache
def proxies_redis() -> redis.Redis:
    """Return this process's client for the proxies' channel; safe for many threads, and quick to give up."""
    return redis.Redis.from_url(
        settings.CHANNEL_REDIS_URL, socket_connect_timeout=1, socket_timeout=2, retry=Retry(NoBackoff(), 1)
    )


def _tell_proxies(message: Mapping[str, object]) -> None:
    try:
        publish(message)
    except (RedisError, OSError) as error:
        logger.warning("could not tell the proxies %s: %s; they look by themselves", message, error)


def _send_tasks(messages: Iterable[tuple[str, tuple[object, ...], str]]) -> None:
    for message in messages:
        _send_task(*message)


def _send_task(name: str, args: tuple[object, ...], queue: str) -> None:
    try:
        current_app.send_task(name, args=args, queue=queue)
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("could not send %s%r: %s; the periodic task will make up for it", name, args, error)


def _broadcast(changed: tuple[tuple[str, int], ...]) -> None:
    try:
        async_to_sync(_send_to_groups)(changed)
    except (RedisError, OSError) as error:
        logger.warning("could not tell the browsers about %d sessions: %s", len(changed), error)


def _tell_group(group: str) -> None:
    try:
        async_to_sync(get_channel_layer().group_send)(group, {"type": "login.changed"})
    except (RedisError, OSError) as error:
        logger.warning("could not tell the websockets of %s: %s; they look by themselves", group, error)


async def _send_to_groups(changed: tuple[tuple[str, int], ...]) -> None:
    layer = get_channel_layer()
    told: dict[str, list[str]] = {}
    for session_id, owner_id in changed:
        for group in (user_group(owner_id), SUPERADMINS):
            told.setdefault(group, []).append(session_id)
    for group, sessions in told.items():
        for session_id in sessions if len(sessions) <= DIRECT_SEND_LIMIT else (ALL,):
            await layer.group_send(group, {"type": "session.changed", "session": session_id})
