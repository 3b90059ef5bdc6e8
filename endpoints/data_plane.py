"""The data plane of this process, with the platform's names, keys and database behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

from channels.db import database_sync_to_async
from django.conf import settings

from endpoints import tickets
from endpoints.feed import Feed, feeding
from proxy.authorization import BrowserAuthorizer
from proxy.data_plane import DataPlane
from proxy.gateway import GatewayAuthorizer
from proxy.limits import GATEWAY_LIMITS
from proxy.response_parser import DecodingResponseParser, ResponseParser
from proxy.routes import RouteTable
from proxy.signing import Grant
from sessions import activity
from sessions.app_addresses import site
from sessions.engine_address import signing_keys


class DatabaseControlPlane:
    """Redeems tickets and notes activity in the platform's database."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Use the ticket up, in a thread; see `tickets.redeem`."""
        found: tuple[Grant, str] | None = await database_sync_to_async(tickets.redeem, thread_sensitive=False)(
            ticket, label, state_digest
        )
        return found

    def used(self, session: str) -> None:
        """Note that the session is in use."""
        activity.used(session)


def data_plane(response_parser: type[ResponseParser] = ResponseParser) -> DataPlane:
    """Return a new data plane for browsers, without routes yet."""
    control_plane = DatabaseControlPlane()
    trusted_proxies = [ip_network(each) for each in settings.COMPUTE_TRUSTED_PROXIES]
    authorizer = BrowserAuthorizer(
        site=site(),
        table=RouteTable(),
        keys=signing_keys(),
        subnets=[ip_network(each) for each in settings.COMPUTE_SESSION_SUBNETS],
        trusted_proxies=trusted_proxies,
        control_plane=control_plane,
    )
    return DataPlane(authorizer, control_plane, response_parser=response_parser, trusted_proxies=trusted_proxies)


def gateway_plane() -> DataPlane:
    """Return a new data plane for a gateway, without routes yet."""
    subnets = [ip_network(each) for each in settings.COMPUTE_SESSION_SUBNETS]
    authorizer = GatewayAuthorizer(table=RouteTable(), keys=signing_keys(), subnets=subnets)
    return DataPlane(authorizer, DatabaseControlPlane(), GATEWAY_LIMITS)


@asynccontextmanager
async def running(plane: DataPlane) -> AsyncIterator[None]:
    """Keep the plane's routes in step and its deadlines watched while the block runs; end its connections after it."""
    async with feeding(plane.authorizer.table):
        plane.start()
        try:
            yield
        finally:
            plane.stop()


class LazyPlane:
    """The data plane of the ASGI server, started by the first request: not all ASGI servers announce their start."""

    def __init__(self) -> None:
        self._plane: DataPlane | None = None
        self._feed: Feed | None = None
        self._beginning = asyncio.Lock()

    async def __call__(self) -> DataPlane:
        """Return the plane, with its routes."""
        if self._plane is None:
            async with self._beginning:
                if self._plane is None:
                    self._plane = await self._begin()
        return self._plane

    async def _begin(self) -> DataPlane:
        plane = data_plane(DecodingResponseParser)
        self._feed = Feed(plane.authorizer.table)
        await self._feed.begin()
        plane.start()
        return plane
