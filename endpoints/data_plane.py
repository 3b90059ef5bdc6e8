"""Builds the data plane of a process from the settings and the database."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network

from channels.db import database_sync_to_async
from django.conf import settings

from endpoints import served, services
from endpoints.handoff import tickets
from endpoints.routing.feed import RouteSource, synchronized
from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.control_plane import ServiceFigures
from proxy.authorization.gateway import GatewayAuthorizer
from proxy.authorization.signing import Grant, Keys
from proxy.budgets import SpentBudget, TokenUse, UsageKey
from proxy.counters import ConnectionCounters
from proxy.data_plane import DataPlane
from proxy.limits import GATEWAY_LIMITS
from proxy.routes import RouteTable
from sessions.access import activity
from sessions.access.app_addresses import site
from sessions.access.engine_address import signing_keys


class DatabaseControlPlane:
    """The control plane of a data plane: redeems tickets and records activity in the database."""

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Consume the ticket, in a thread; see `tickets.redeem`."""
        found: tuple[Grant, str] | None = await database_sync_to_async(tickets.redeem, thread_sensitive=False)(
            ticket, label, state_digest
        )
        return found

    async def look(self, label: str) -> None:
        """Have the host look at the app; see `services.look_at`."""
        await database_sync_to_async(services.look_at, thread_sensitive=False)(label)

    def used(self, session: str) -> None:
        """Record that the session is in use."""
        activity.used(session)

    def wake(self, deployment: str) -> None:
        """Have a replica of the deployment run, in the background; see `served.wake`."""
        served.wake(deployment)

    def served(self, figures: Sequence[ServiceFigures]) -> None:
        """Record what deployments have served; see `served.record`."""
        served.record(figures)

    def metered(self, uses: Mapping[UsageKey, TokenUse]) -> Mapping[int, SpentBudget]:
        """Record what tokens have used; see `served.meter`."""
        return served.meter(uses)


def data_plane(counters: ConnectionCounters | None = None) -> DataPlane:
    """Return a new data plane for browsers, without routes yet; `counters` where several processes serve together."""
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
    return DataPlane(authorizer, control_plane, trusted_proxies=trusted_proxies, counters=counters)


def gateway_plane(keys: Keys, counters: ConnectionCounters | None = None) -> DataPlane:
    """Return a new data plane for the gateway of the host with these keys, without routes yet."""
    subnets = [ip_network(each) for each in settings.COMPUTE_SESSION_SUBNETS]
    authorizer = GatewayAuthorizer(table=RouteTable(), keys=keys, subnets=subnets)
    return DataPlane(authorizer, DatabaseControlPlane(), GATEWAY_LIMITS, counters=counters)


@asynccontextmanager
async def running(plane: DataPlane, source: RouteSource | None = None) -> AsyncIterator[None]:
    """Synchronize the plane's routes and enforce its deadlines while the block runs; then end its connections.

    Its routes are those of `source`, by default all.
    """
    async with synchronized(plane.authorizer.table, source):
        plane.start()
        try:
            yield
        finally:
            plane.stop()
