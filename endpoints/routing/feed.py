"""Synchronizes a RouteTable with the database, in the web process, the app proxy and the gateway.

Messages, as JSON, are published on commit, on the Redis channel `gp.routes` for app proxies, and on that of a host
for its gateway:

* {"session": id}: read this session's routes again;
* {"deployment": id}: read the service of this deployment and the routes to its replicas again; with "reply": key,
  push an acknowledgement to the list `key` once that is done;
* {"deployment": id, "healthy": session id, "attempt": number}: the same, and have this replica take requests at once,
  where it is known: requests that wait for a deployment to wake need not wait for the read;
* {"withdraw": id, "attempt": number, "reply": key}: remove them now, and push an acknowledgement to the list `key`;
  those of a later attempt, such as of a session that was parked, are read as ever;
* {"login": digest, "at": Unix seconds}, {"user": id, "at": Unix seconds}: revoke the cookies issued until then.

Messages may be lost: everything is read again every 10 seconds, and every second while Redis is down. While the
database is down the routes stay as they were.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import Error
from django.utils import timezone
from redis.asyncio import Redis
from redis.exceptions import RedisError

from endpoints.routing import routes, service_routes
from endpoints.routing.revocations import RETENTION
from endpoints.routing.service_routes import ServiceRows
from messaging import clients
from proxy.routes import Route, RouteTable, Service
from sessions.models import Revocation
from sessions.notify import REPLY_TTL_SECONDS, ROUTES_CHANNEL, routes_channel

logger = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 10.0
REDIS_DOWN_SECONDS: Final = 1.0  # between reads, and between attempts to connect, while Redis is down
CANCEL_SECONDS: Final = 0.2  # between cancellations of a task that ends
REFRESH_SECONDS: Final = 2.0  # that somebody waits for a route which may be on its way
POLL_SECONDS: Final = 5.0  # after which a silent connection to Redis is probed


Read = TypeVar("Read")


class RouteSnapshot(NamedTuple):
    """All that a table holds."""

    routes: list[Route]
    logins: list[tuple[str, float]] = []  # digest, and until when its cookies are void in Unix seconds
    users: list[tuple[int, float]] = []
    services: list[Service] = []


class RouteSource(Protocol):
    """Which routes a process has; called in a thread. `channel` is that of Redis on which it hears of changes."""

    channel: str

    def read(self, sessions: Collection[str]) -> list[Route]:
        """Return the routes of these sessions."""

    def read_services(self, deployments: Collection[str]) -> ServiceRows:
        """Return the services of these deployments, and the routes to their replicas."""

    def read_all(self) -> RouteSnapshot:
        """Return everything."""


class PlatformRoutes:
    """All routes, and what was revoked: of processes that browsers reach."""

    channel = ROUTES_CHANNEL

    def read(self, sessions: Collection[str]) -> list[Route]:
        """Return the routes of these sessions; one query."""
        return routes.read(sessions)

    def read_services(self, deployments: Collection[str]) -> ServiceRows:
        """Return the services of these deployments, and the routes to their replicas; four queries."""
        return service_routes.read(deployments)

    def read_all(self) -> RouteSnapshot:
        """Return all routes, services and revocations, in six queries."""
        revoked = Revocation.objects.filter(at__gt=timezone.now() - RETENTION).values_list("login", "user", "at")
        rows = list(revoked)
        return RouteSnapshot(
            logins=[(login, at.timestamp()) for login, user, at in rows if user is None],
            users=[(user, at.timestamp()) for _, user, at in rows if user is not None],
            services=service_routes.read().services,
            routes=routes.read(),  # last, so that it lacks routes withdrawn meanwhile
        )


class HostRoutes:
    """The routes to containers of this host: of its gateway, which knows neither users nor cookies."""

    def __init__(self) -> None:
        self.channel = routes_channel(settings.COMPUTE_HOST_NAME)

    def read(self, sessions: Collection[str]) -> list[Route]:
        """Return the routes of these sessions; one query."""
        return routes.read_here(sessions)

    def read_services(self, deployments: Collection[str]) -> ServiceRows:
        """Return no services, and the routes to replicas of these deployments on this host; two queries."""
        return ServiceRows([], service_routes.read_here(deployments))

    def read_all(self) -> RouteSnapshot:
        """Return the routes of the host; one query."""
        return RouteSnapshot(routes.read_here())


@contextlib.asynccontextmanager
async def synchronized(table: RouteTable, source: RouteSource | None = None) -> AsyncIterator[None]:
    """Load the routes of `source`, by default all, into the table, and keep it synchronized until the block ends."""
    feed = RouteFeed(table, source or PlatformRoutes())
    await feed.start()
    try:
        yield
    finally:
        await feed.stop()


class RouteFeed:
    """A task that listens for messages and one that reads the database. Belongs to one event loop."""

    def __init__(self, table: RouteTable, source: RouteSource) -> None:
        self._table = table
        self._source = source
        self._sessions: set[str] = set()  # to be read again
        self._deployments: set[str] = set()  # the same
        self._is_full_read_due = True
        self._wake = asyncio.Event()
        self._is_subscribed = False  # to the Redis channel
        # The last attempts of sessions, since the last full read began: an older read may contain them.
        self._withdrawn: dict[str, float] = {}
        self._failure = ""
        self._waiting: list[asyncio.Future[bool]] = []  # for the next read to end
        self._tasks: list[asyncio.Task[None]] = []
        self._reader = ThreadPoolExecutor(
            1, thread_name_prefix="routes"
        )  # its own: tickets may fill the loop's default pool

    async def start(self) -> None:
        """Read everything once, if the database responds, and start the background tasks."""
        self._run(self._listen())
        await self._read()
        self._run(self._keep_reading())
        self._table.reader = self.refresh

    async def stop(self) -> None:
        """Stop the background tasks."""
        self._table.reader = None
        while left := [task for task in self._tasks if not task.done()]:
            for task in left:  # more than once: a connection that fails in its turn replaces the cancellation
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_SECONDS)
        self._reader.shutdown(wait=False)

    async def refresh(self, pk: str) -> None:
        """Read the routes of the session, or the service of the deployment, with this id again.

        Return after that, or after REFRESH_SECONDS.

        Requests are served by one query after the other, however many there are at once.
        """
        self._sessions.add(pk)
        self._deployments.add(pk)
        read = self._next_read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS):
                await read

    def _next_read(self) -> asyncio.Future[bool]:
        """Have what was named be read, and return whether it was, once that is over."""
        read = asyncio.get_running_loop().create_future()
        self._waiting.append(read)
        self._wake.set()
        return read

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(_report_failure)
        task.add_done_callback(self._tasks.remove)

    async def _keep_reading(self) -> None:
        """Read what messages name; and everything, however many come, as often as the module says."""
        loop = asyncio.get_running_loop()
        read_at = loop.time()
        while True:
            due = read_at + (RECONCILE_SECONDS if self._is_subscribed else REDIS_DOWN_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()
            self._is_full_read_due |= loop.time() >= due
            if self._is_full_read_due:
                read_at = loop.time()
            await self._read()

    async def _read(self) -> None:
        """Read what is due into the table; after an error, a full read is due."""
        sessions, self._sessions = self._sessions, set()
        deployments, self._deployments = self._deployments, set()
        everything, self._is_full_read_due = self._is_full_read_due, False
        waiting, self._waiting = self._waiting, []
        try:
            if everything:
                await self._read_everything()
            else:
                await self._read_some(sessions, deployments)
        except Error as error:
            self._is_full_read_due = True  # at the next reconciliation
            if str(error) != self._failure:
                logger.warning("the routes stay as they are, the database does not answer: %s", error)
            self._failure = str(error)
        else:
            self._failure = ""
        finally:
            for read in waiting:
                if not read.done():
                    read.set_result(not self._failure)

    async def _read_some(self, sessions: set[str], deployments: set[str]) -> None:
        if sessions:
            self._replace(await self._in_background(lambda: self._source.read(sessions)), sessions)
        if deployments:
            found = await self._in_background(lambda: self._source.read_services(deployments))
            self._replace(found.routes, {route.session for route in found.routes})
            for deployment in deployments:
                services = [service for service in found.services if service.deployment == deployment]
                self._table.replace_services(self._without_withdrawn(services), deployment=deployment)

    async def _read_everything(self) -> None:
        known = dict(self._withdrawn)
        found = await self._in_background(self._source.read_all)
        self._table.revocations.forget(timezone.now().timestamp() - RETENTION.total_seconds())
        for login, at in found.logins:
            self._table.revocations.revoke_login(login, at)
        for user, at in found.users:
            self._table.revocations.revoke_user(user, at)
        self._table.replace(route for route in found.routes if self._is_offered(route))
        self._table.replace_services(self._without_withdrawn(found.services))
        self._withdrawn = {pk: last for pk, last in self._withdrawn.items() if known.get(pk) != last}

    def _without_withdrawn(self, services: Iterable[Service]) -> list[Service]:
        """Return the services without the replicas that are about to stop."""
        return [
            replace(service, replicas=tuple(each for each in service.replicas if self._is_offered(each.route)))
            for service in services
        ]

    def _is_offered(self, route: Route) -> bool:
        return route.attempt > self._withdrawn.get(route.session, -1)

    async def _in_background(self, read: Callable[[], Read]) -> Read:
        """Call `read` in the reader's thread, which has a database connection of its own."""
        call = database_sync_to_async(read, thread_sensitive=False, executor=self._reader)
        found: Read = await call()
        return found

    def _replace(self, found: list[Route], sessions: Iterable[str]) -> None:
        for session in sessions:
            current = (route for route in found if route.session == session and self._is_offered(route))
            self._table.replace(current, session=session)

    async def _listen(self) -> None:
        failure = ""
        while True:
            try:
                async with _redis() as client:
                    failure = ""
                    await self._follow(client)
            except (RedisError, OSError) as error:
                if str(error) != failure:
                    logger.warning("Redis does not answer, so routes are read every second: %s", error)
                failure = str(error)
            self._is_subscribed = False
            self._wake.set()
            await asyncio.sleep(REDIS_DOWN_SECONDS)

    async def _follow(self, client: Redis) -> None:
        async with client.pubsub() as channel:
            await channel.subscribe(self._source.channel)
            while True:
                message = await channel.get_message(timeout=POLL_SECONDS)
                if message and message["type"] == "subscribe":  # also again, after the connection was lost
                    self._is_subscribed = self._is_full_read_due = True
                    self._wake.set()
                elif message and message["type"] == "message":
                    await self._apply(client, message["data"])

    async def _apply(self, client: Redis, data: bytes) -> None:
        try:
            await self._handle(client, json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("ignored a malformed message about routes: %.200r: %r", data, error)

    async def _handle(self, client: Redis, message: dict[str, Any]) -> None:
        if "session" in message:
            self._sessions.add(str(message["session"]))
            self._wake.set()
        elif "deployment" in message:
            deployment = str(message["deployment"])
            if "healthy" in message:
                self._table.have_taking(deployment, str(message["healthy"]), int(message["attempt"]))
            self._deployments.add(deployment)
            read = self._next_read()
            if "reply" in message:
                self._run(_acknowledge_read(client, read, str(message["reply"])))
        elif "withdraw" in message:
            session, reply_list = str(message["withdraw"]), str(message["reply"])
            self._withdrawn[session] = float(message.get("attempt", inf))
            self._table.replace((), session=session)
            await _acknowledge(client, reply_list)
        elif "login" in message:
            self._table.revocations.revoke_login(str(message["login"]), float(message["at"]))
        else:
            self._table.revocations.revoke_user(int(message["user"]), float(message["at"]))


async def _acknowledge_read(client: Redis, read: "asyncio.Future[bool]", reply_list: str) -> None:
    with contextlib.suppress(RedisError, OSError):  # whoever waits gives up
        if await read:
            await _acknowledge(client, reply_list)


async def _acknowledge(client: Redis, reply_list: str) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        pipeline.rpush(reply_list, 1)
        pipeline.expire(reply_list, REPLY_TTL_SECONDS)
        await pipeline.execute()


def _report_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.critical("the routes are no longer synchronized", exc_info=error)


def _redis() -> Redis:
    return clients.async_client(
        settings.CHANNEL_REDIS_URL, socket_connect_timeout=2, health_check_interval=int(POLL_SECONDS)
    )
