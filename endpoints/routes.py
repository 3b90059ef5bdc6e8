"""Computes the proxies' routes from the rows of endpoints and sessions."""

import ipaddress
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache

from django.conf import settings
from django.utils import timezone

from proxy.routes import Route
from sessions.engine_address import HostUnreachableError, gateway_of
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, Session

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read(sessions: Collection[str] | None = None) -> list[Route]:
    """Return the routes of these sessions, or of all: one for each READY endpoint of a RUNNING one. One query."""
    ready = Endpoint.objects.filter(
        state=EndpointState.READY, session__status=Status.RUNNING, session__address__isnull=False
    )
    if sessions is not None:
        ready = ready.filter(session__in=sessions)
    now = timezone.now()
    found = (route_of(endpoint, now) for endpoint in ready.select_related("session__owner__policy", "session__host"))
    return [route for route in found if route]


def route_of(endpoint: Endpoint, now: datetime) -> Route | None:
    """Return the route to the endpoint of a running session; None if it is unreachable, see `obstacle`."""
    session = endpoint.session
    if session.address is None or session.host is None or obstacle(session):
        return None
    return Route(
        label=endpoint.label,
        session=session.pk,
        owner=session.owner_id,
        address=session.address,
        port=endpoint.port,
        epoch=endpoint.epoch,
        is_public=is_public(endpoint, now),
        token=endpoint.token,
        gateway=gateway_of(session.host),
        listen_port=endpoint.listen_port,
    )


def obstacle(session: Session) -> str:
    """Return why no app of this session can be reached, for its owner to read; "" if apps are reachable."""
    if session.status != Status.RUNNING or session.host is None:
        return "The session does not run."
    if session.address is None:
        return "The address of the session's container is not known yet."
    if not any(ipaddress.ip_address(session.address) in network for network in _subnets()):
        return f"Its container's address {session.address} is in none of the networks of COMPUTE_SESSION_SUBNETS."
    try:
        gateway_of(session.host)
    except HostUnreachableError as reason:
        return str(reason)
    return ""


def is_public(endpoint: Endpoint, now: datetime) -> bool:
    """Return whether the endpoint is public now: published, not expired, and allowed by its owner's policy."""
    owner = endpoint.session.owner
    is_allowed = owner.is_active and owner.policy.allow_public_apps
    return endpoint.is_public and is_allowed and (endpoint.public_until is None or endpoint.public_until > now)


def _subnets() -> tuple[Network, ...]:
    return _networks(tuple(settings.COMPUTE_SESSION_SUBNETS))


@lru_cache
def _networks(written: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in written)
