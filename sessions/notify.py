"""Messages sent after a commit: tasks to hosts, changes to browsers, routes to the app proxies.

Tasks are named as text, so that this module does not import them. A message that cannot be sent is logged and dropped:
the database is the source of truth, and periodic tasks repeat what was lost.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Final

import redis
from celery import current_app
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from messaging import clients
from messaging.background import BackgroundThread

logger = logging.getLogger(__name__)

SUPERADMINS: Final = "superadmins"
ROUTES_CHANNEL: Final = "gp.routes"  # of Redis, for app proxies; endpoints/routing/feed.py defines its messages

REPLIES: Final = "gp.withdrawn"  # how the names of lists of acknowledgements begin; hosts may write no others
REPLY_TTL_SECONDS: Final = 10  # expiry of such a list in Redis
TELL_SECONDS: Final = 1.0  # that a user waits for proxies which have not followed a message

DIRECT_SEND_LIMIT: Final = 20  # messages; beyond it hosts get theirs in the background, and browsers fetch everything
SessionChange = tuple[str, int, int | None]  # ids of a session, its owner and its project
ALL: Final = ""  # in place of a session id: many sessions have changed

_hosts = BackgroundThread("notify-hosts")
_proxies = BackgroundThread("notify-proxies")
_browsers = BackgroundThread("notify-browsers")  # apart from the hosts' messages, so that it cannot delay a launch


def user_group(user_id: int) -> str:
    """Return the channel-layer group that the browsers of this user listen to."""
    return f"user.{user_id}"


def project_group(project_id: int) -> str:
    """Return the channel-layer group that the browsers of this project's managers listen to."""
    return f"project.{project_id}"


def login_group(login: str) -> str:
    """Return the channel-layer group of the websockets of a login session, given by its digest."""
    return f"login.{login}"


def account_group(user_id: int) -> str:
    """Return the channel-layer group of the websockets of all login sessions of this user."""
    return f"account.{user_id}"


def host_queue(host_name: str) -> str:
    """Return the Celery queue that the worker of this host consumes."""
    return f"host.{host_name}"


def send_to_host(host_name: str, task: str, *arguments: object) -> None:
    """Send `hostworker.tasks.<task>` with these arguments to the host's worker once the current transaction commits."""
    send = partial(_send_task, f"hostworker.tasks.{task}", arguments, host_queue(host_name))
    transaction.on_commit(send)


def send_to_hosts(task: str, starts: Iterable[tuple[str, str, int]]) -> None:
    """Send the task for each (host, session, attempt) as `send_to_host` does; many are sent in the background.

    A message takes about a millisecond, so thousands of them would delay the next scheduling pass.
    """
    messages = [(f"hostworker.tasks.{task}", (pk, attempt), host_queue(host)) for host, pk, attempt in starts]
    if len(messages) > DIRECT_SEND_LIMIT:
        transaction.on_commit(partial(_hosts.run, _send_tasks, messages))
    elif messages:
        transaction.on_commit(partial(_send_tasks, messages))


def sessions_changed(changed: Iterable[SessionChange]) -> None:
    """After the commit, have the browsers of owners, managers of the projects and superadmins fetch these again."""
    transaction.on_commit(partial(_browsers.run, _broadcast, tuple(changed)))


def login_changed(login: str) -> None:
    """After the commit, have the websockets of this login session, given by its digest, check that it is valid."""
    tell_group(login_group(login), "login.changed")


def account_changed(user_id: int) -> None:
    """After the commit, have the websockets of this user check what the user may do."""
    tell_group(account_group(user_id), "login.changed")


def tell_group(group: str, message_type: str) -> None:
    """After the commit, send a message of this type and no content to the websockets of a channel-layer group."""
    transaction.on_commit(partial(_browsers.run, _send_to_group, group, message_type))


def send_to_scheduler(task: str) -> None:
    """Send the task without arguments to the scheduler's queue once the current transaction commits."""
    transaction.on_commit(partial(_send_task, task, (), "scheduler"))


def routes_channel(host_name: str) -> str:
    """Return the channel of Redis on which the gateway of this host hears of routes, its own alone."""
    return f"{ROUTES_CHANNEL}.{host_name}"


def routes_changed(session_id: str, host_name: str = "") -> None:
    """After the commit, have every app proxy, and one host's gateway, read the routes of this session again."""
    publish_to_proxies({"session": session_id}, host_name)


def publish_to_proxies(message: Mapping[str, object], host_name: str = "") -> None:
    """After the commit, send the message as `publish` does."""
    transaction.on_commit(partial(_proxies.run, _publish, message, host_name))


def publish(message: Mapping[str, object], host_name: str = "") -> int:
    """Send the message to every app proxy, and to the gateway of one host, by default this process's.

    Return how many got it. Were every gateway sent what concerns another host, then messages, and what gateways ask
    the database because of them, would grow with the square of the hosts. Raises RedisError, OSError.
    """
    data = json.dumps(message)
    with proxies_redis().pipeline(transaction=False) as pipeline:
        for channel in (ROUTES_CHANNEL, routes_channel(host_name or settings.COMPUTE_HOST_NAME)):
            pipeline.publish(channel, data)
        return sum(map(int, pipeline.execute()))


def ask(message: Mapping[str, object], seconds: float) -> int:
    """Publish the message, and wait until all who got it have acknowledged it; return how many have not.

    Each has so long as others have; a process may be busy, or dead unnoticed. Raises RedisError, OSError.
    """
    reply_list, deadline = f"{REPLIES}:{secrets.token_hex(8)}", time.monotonic() + seconds
    missing = publish({**message, "reply": reply_list})
    while missing and (left := deadline - time.monotonic()) > 0:
        missing -= bool(proxies_redis().blpop([reply_list], timeout=left))
    return missing


def tell_proxies(message: Mapping[str, object]) -> None:
    """After the commit, send the message to every process that caches routes, and wait until they have followed it."""
    transaction.on_commit(partial(_tell, message))


@lru_cache
def proxies_redis() -> redis.Redis:
    """Return this process's Redis client for the routes channel: thread-safe, with short timeouts and one retry."""
    return clients.client(
        settings.CHANNEL_REDIS_URL, socket_connect_timeout=1, socket_timeout=2, retry=Retry(NoBackoff(), 1)
    )


def _publish(message: Mapping[str, object], host_name: str) -> None:
    try:
        publish(message, host_name)
    except (RedisError, OSError) as error:
        logger.warning("could not send %s to the app proxies: %s; they poll for it", message, error)


def _tell(message: Mapping[str, object]) -> None:
    try:
        if missing := ask(message, TELL_SECONDS):
            logger.warning("%d app proxies did not acknowledge %s in time; they poll for it", missing, message)
    except (RedisError, OSError) as error:
        logger.warning("could not send %s to the app proxies: %s; they poll for it", message, error)


def _send_tasks(messages: Iterable[tuple[str, tuple[object, ...], str]]) -> None:
    for message in messages:
        _send_task(*message)


def _send_task(name: str, args: tuple[object, ...], queue: str) -> None:
    try:
        current_app.send_task(name, args=args, queue=queue, declare=())  # hosts may send, but bind no queue
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("could not send %s%r: %s; a periodic task repeats it", name, args, error)


@lru_cache
def _loop() -> asyncio.Runner:
    """Return the event loop of the browsers' thread; with one for each message each would connect to Redis."""
    return asyncio.Runner()


def _broadcast(changed: tuple[SessionChange, ...]) -> None:
    try:
        _loop().run(_send_to_groups(changed))
    except (RedisError, OSError) as error:
        logger.warning("could not send changes of %d sessions to browsers: %s", len(changed), error)


def _send_to_group(group: str, message_type: str) -> None:
    try:
        _loop().run(get_channel_layer().group_send(group, {"type": message_type}))
    except (RedisError, OSError) as error:
        logger.warning("could not send %s to the websockets of %s: %s", message_type, group, error)


async def _send_to_groups(changed: tuple[SessionChange, ...]) -> None:
    layer = get_channel_layer()
    by_group: dict[str, list[str]] = {}
    for session_id, owner_id, project_id in changed:
        managers = () if project_id is None else (project_group(project_id),)
        for group in (user_group(owner_id), *managers, SUPERADMINS):
            by_group.setdefault(group, []).append(session_id)
    for group, sessions in by_group.items():
        for session_id in sessions if len(sessions) <= DIRECT_SEND_LIMIT else (ALL,):
            await layer.group_send(group, {"type": "session.changed", "session": session_id})
