"""Limits on pending connections: idle clients cannot keep others out."""

import asyncio
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_network

import pytest

from proxy.data_plane import DataPlane
from proxy.limits import ProxyLimits
from proxy.pending import source_of
from proxy.tests.app import running_app
from proxy.tests.servers import running
from proxy.tests.site import FakeControlPlane, authorizer, cookie, route
from proxy.tests.test_dispatch import PLATFORM, serving
from proxy.tests.wire import Client, connected, handshake, request
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback


async def idle(stack: AsyncExitStack, port: int, count: int) -> list[Client]:
    """Open so many connections that send nothing."""
    return [await stack.enter_async_context(connected(port)) for _ in range(count)]


async def refusal(port: int) -> bytes:
    """Return what a connection receives that sends nothing, until it is closed."""
    async with connected(port) as client:
        return await client.ended()


@pytest.mark.parametrize(
    ("limits", "status"),
    [(ProxyLimits(pending_per_address=3), b"HTTP/1.1 429 "), (ProxyLimits(pending_total=3), b"HTTP/1.1 503 ")],
    ids=["of one address", "in all"],
)
async def test_silent_connections_are_limited_and_released(limits: ProxyLimits, status: bytes) -> None:
    async with AsyncExitStack() as stack, running("direct", limits) as proxy:
        waiting = await idle(stack, proxy.port, 3)
        assert (await refusal(proxy.port)).startswith(status)
        waiting[0].reset()
        async with asyncio.timeout(SECONDS):
            while not await is_served(proxy.port):
                await asyncio.sleep(0.01)


async def is_served(port: int) -> bool:
    """Return whether an authorized request is served."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with connected(port) as client:
            return (await client.ask(request(Cookie=cookie()))).status == 200
    return False


async def test_only_unauthorized_connections_are_pending() -> None:
    limits = ProxyLimits(pending_per_address=2)
    async with AsyncExitStack() as stack, running("direct", limits) as proxy:
        for _ in range(4):
            client = await stack.enter_async_context(connected(proxy.port))
            assert (await client.ask(request(Cookie=cookie()))).status == 200
            socket = await stack.enter_async_context(connected(proxy.port))
            await socket.send(handshake(Cookie=cookie()))
            assert (await socket.head()).status == 101
        for _ in range(2):
            anonymous = await stack.enter_async_context(connected(proxy.port))
            assert (await anonymous.ask(request())).status == 401
        assert (await refusal(proxy.port)).startswith(b"HTTP/1.1 429 ")


async def test_trusted_proxies_are_not_limited() -> None:
    limits, trusted_proxies = ProxyLimits(pending_per_address=1, pending_total=1), [ip_network("127.0.0.1/32")]
    async with AsyncExitStack() as stack, running("direct", limits, trusted_proxies) as proxy:
        await idle(stack, proxy.port, 5)
        async with connected(proxy.port) as client:
            assert (await client.ask(request(Cookie=cookie()))).status == 200


async def test_connection_is_pending_until_its_first_request() -> None:
    limits = ProxyLimits(pending_per_address=2)
    async with AsyncExitStack() as stack, running_app() as app:
        plane = DataPlane(authorizer(route(port=app.port)), FakeControlPlane(), limits)
        port = await stack.enter_async_context(serving(plane))
        for _ in range(4):
            client = await stack.enter_async_context(connected(port))
            assert (await client.ask(request("GET", "/", b"", PLATFORM))).body == b"the platform"
        await idle(stack, port, 2)
        assert (await refusal(port)).startswith(b"HTTP/1.1 429 ")


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_ipv6_network_is_one_source(address: str, source: str) -> None:
    assert source_of(address) == source
