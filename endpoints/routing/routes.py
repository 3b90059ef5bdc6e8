"""Computes the proxies' routes from the rows of endpoints and sessions."""

import ipaddress
import logging
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db.models import OuterRef, Subquery

from hostaccess import keys
from hostaccess.models import HostAccess
from proxy.routes import AppCondition, Route
from resources import clock
from resources.models import Host
from sessions.access.engine_address import HostUnreachableError, gateway_of
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointQuerySet, EndpointState, Session

logger = logging.getLogger(__name__)

# Its ports are those of the host and of all others there, which the platform is not to show to anybody.
HOST_NETWORK: Final = "A cluster in the network of its hosts offers no apps. Forward the port of a program over SSH."

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read(sessions: Collection[str] | None = None) -> list[Route]:
    """Return the routes of these sessions, or of all: one for each unclosed endpoint of a RUNNING one. One query."""
    opened = Endpoint.objects.unclosed().filter(session__status=Status.RUNNING, session__address__isnull=False)
    if sessions is not None:
        opened = opened.filter(session__in=sessions)
    now = clock.now()
    found = (route_of(endpoint, now, bytes(endpoint.host_key or b"")) for endpoint in with_keys(opened))
    return [route for route in found if route]


def read_here(sessions: Collection[str] | None = None) -> list[Route]:
    """Return the routes to containers of this host, of these sessions or of all, for its gateway. One query."""
    ready = Endpoint.objects.filter(
        state=EndpointState.READY,
        session__status=Status.RUNNING,
        session__address__isnull=False,
        session__host__name=settings.COMPUTE_HOST_NAME,
    )
    if sessions is not None:
        ready = ready.filter(session__in=sessions)
    rows = ready.values_list("app", "session_id", "session__address", "port", "session__attempt")
    return [
        Route(label=f"{app}--{pk}", session=pk, owner=0, address=str(address), port=port, epoch=0, attempt=attempt)
        for app, pk, address, port, attempt in rows
    ]


def with_keys(endpoints: EndpointQuerySet) -> Any:
    """Return the endpoints with all that a route needs, no user's password among it; `host_key` as it is stored."""
    key = HostAccess.objects.filter(name=OuterRef("session__host__name")).values("encrypted_key")
    related = endpoints.select_related("session__owner__policy", "session__project__policy", "session__host").defer(
        "session__owner__password"
    )
    return related.annotate(host_key=Subquery(key))


def route_of(endpoint: Endpoint, now: datetime, host_key: bytes) -> Route | None:
    """Return the route to the endpoint of a running session; None if it is unreachable, see `obstacle`.

    `host_key` is what is stored of the key of its host.
    """
    session = endpoint.session
    if session.address is None or session.host is None or obstacle(session):
        return None
    gateway = gateway_of(session.host)
    key = _gateway_key(session.host, host_key) if gateway else ""
    if key is None:
        return None
    return Route(
        label=endpoint.label,
        session=session.pk,
        attempt=session.attempt,
        owner=session.owner_id,
        address=session.address,
        port=endpoint.port,
        epoch=endpoint.epoch,
        is_public=is_public(endpoint, now),
        token=endpoint.token,
        gateway=gateway,
        gateway_key=key,
        listen_port=endpoint.listen_port,
        is_ready=endpoint.state == EndpointState.READY,
        condition=AppCondition(
            (endpoint.obstacle or endpoint.state).lower(), endpoint.title, endpoint.detail, endpoint.output
        ),
    )


def _gateway_key(host: Host, stored: bytes) -> str | None:
    """Return the key of a gateway, None where it cannot be decrypted: the log says so, and all other routes work."""
    try:
        return keys.decrypted(host.name, stored)
    except keys.HostKeyError as error:
        logger.error("host %s: its apps are out of reach: %s", host.name, error)
        return None


def obstacle(session: Session) -> str:
    """Return why no app of this session can be reached, for its owner to read; "" if apps are reachable."""
    if session.status != Status.RUNNING or session.host is None:
        return "The session does not run."
    if session.address is None:
        return HOST_NETWORK if session.has_host_network else "The address of the session's container is not known yet."
    if not any(ipaddress.ip_address(session.address) in network for network in _subnets()):
        return f"Its container's address {session.address} is in none of the networks of COMPUTE_SESSION_SUBNETS."
    try:
        gateway_of(session.host)
    except HostUnreachableError as reason:
        return str(reason)
    return ""


def is_public(endpoint: Endpoint, now: datetime) -> bool:
    """Return whether the endpoint is public now: published, not expired, and allowed by the policies of its session."""
    session = endpoint.session
    is_allowed = session.owner.is_active and session.bounds.allow_public_apps
    return endpoint.is_public and is_allowed and (endpoint.public_until is None or endpoint.public_until > now)


def _subnets() -> tuple[Network, ...]:
    return _networks(tuple(settings.COMPUTE_SESSION_SUBNETS))


@lru_cache
def _networks(written: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in written)
