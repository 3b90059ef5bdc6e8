"""Tickets: one-time credentials that hand a browser over from the platform to the origin of an app or a deployment."""

import hmac
import secrets
from datetime import datetime
from typing import Final

from django.db.models import Q

from accounts.models import User
from deployments.models import Deployment, DeploymentTicket
from endpoints.routing.revocations import COOKIE_LIFE
from proxy.authorization.signing import Grant, digest
from resources import clock
from sessions.lifecycle import Status
from sessions.models import TICKET_LIFE, Endpoint, EndpointState, HandOver, Revocation, ShareLink, Ticket

SECRET_BYTES: Final = 32
_RELATED: Final = {Ticket: ("endpoint__session", "user"), DeploymentTicket: ("deployment", "user")}


def issue(endpoint: Endpoint, *, user: User | None, login: str, state: str, path: str) -> str:
    """Return a new ticket. `login` is the digest of the login session or share link, `state` that of the nonce."""
    return _stored(Ticket(endpoint=endpoint, user=user, login=login, state=state, next=path))


def issue_for(deployment: Deployment, *, user: User, login: str, state: str, path: str) -> str:
    """Return a new ticket for the address of a deployment; as `issue`."""
    return _stored(DeploymentTicket(deployment=deployment, user=user, login=login, state=state, next=path))


def _stored(ticket: HandOver) -> str:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    ticket.digest, ticket.expires_at = digest(secret), clock.now() + TICKET_LIFE
    ticket.save(force_insert=True)
    return secret


def redeem(secret: str, label: str, state: str) -> tuple[Grant, str] | None:
    """Consume a ticket; return its grant and the path to redirect to, None if invalid for this address or browser.

    A ticket is consumed by any attempt, valid or not.
    """
    now = clock.now()
    for tickets in (Ticket.objects, DeploymentTicket.objects):
        mine = tickets.filter(digest=digest(secret))
        if mine.filter(used_at=None, expires_at__gt=now).update(used_at=now):
            return _grant(mine.select_related(*_RELATED[mine.model]).get(), label, state)
    return None


def _grant(ticket: Ticket | DeploymentTicket, label: str, state: str) -> tuple[Grant, str] | None:
    target = ticket.endpoint if isinstance(ticket, Ticket) else ticket.deployment
    if target.label != label or not hmac.compare_digest(ticket.state, state):
        return None
    issued_at = ticket.expires_at - TICKET_LIFE
    until = _until(ticket, issued_at) if isinstance(ticket, Ticket) else _until_of_deployment(ticket, issued_at)
    if until is None or _is_void(ticket, issued_at):
        return None
    grant = Grant(
        label=label,
        epoch=target.epoch,
        user=ticket.user_id or 0,
        login=ticket.login,
        issued_at=issued_at.timestamp(),  # so that a revocation since then voids the grant
        expires_at=until.timestamp(),
    )
    return grant, ticket.next


def _until_of_deployment(ticket: DeploymentTicket, issued_at: datetime) -> datetime | None:
    """Return when the grant of the ticket expires; None if its holder may not use the deployment now."""
    user = ticket.user
    if user is None or not user.is_active or ticket.deployment.ended_at is not None:
        return None
    may = Deployment.objects.visible_to(user).filter(pk=ticket.deployment_id).exists()
    return issued_at + COOKIE_LIFE if may else None


def _until(ticket: Ticket, issued_at: datetime) -> datetime | None:
    """Return when the grant of the ticket expires; None if its holder may not use the endpoint now."""
    endpoint, user = ticket.endpoint, ticket.user
    if endpoint.state == EndpointState.CLOSED or endpoint.session.status != Status.RUNNING:
        return None
    latest = issued_at + COOKIE_LIFE
    if user is not None:
        may = user.is_active and (user.is_superuser or user == endpoint.session.owner)
        return latest if may else None
    link = ShareLink.objects.valid().filter(digest=ticket.login, endpoint=endpoint).first()
    return min(latest, link.expires_at) if link else None


def _is_void(ticket: HandOver, issued_at: datetime) -> bool:
    concerned = Q(login=ticket.login) | Q(user=ticket.user) if ticket.user else Q(login=ticket.login)
    return Revocation.objects.filter(concerned, at__gte=issued_at).exists()
