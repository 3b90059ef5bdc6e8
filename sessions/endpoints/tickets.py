"""Tickets: how a browser that is known at the platform, or holds a share link, comes to an endpoint's own origin."""

import secrets
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState, ShareLink, Ticket
from sessions.models.endpoint import TICKET_LIFE
from sessions.proxy.signing import Grant, digest

COOKIE_LIFE: Final = timedelta(hours=12)
SECRET_BYTES: Final = 32


def issue(endpoint: Endpoint, *, user: User | None, login: str, state: str, path: str) -> str:
    """Return a new ticket. `login` is the digest of the login session or share link, `state` that of the nonce."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    Ticket.objects.create(
        digest=digest(secret),
        endpoint=endpoint,
        user=user,
        login=login,
        state=state,
        next=path,
        expires_at=timezone.now() + TICKET_LIFE,
    )
    return secret


def redeem(secret: str, label: str, state: str) -> tuple[Grant, str] | None:
    """Use a ticket up; return what it grants and where to go, None unless it is good, for this endpoint and browser."""
    now = timezone.now()
    with transaction.atomic():
        unused = Ticket.objects.filter(digest=digest(secret), state=state, used_at=None, expires_at__gt=now)
        ticket = unused.select_related("endpoint__session", "user").select_for_update(of=("self",)).first()
        if ticket is None or ticket.endpoint.label != label:
            return None
        ticket.used_at = now
        ticket.save(update_fields=["used_at"])
    endpoint, user = ticket.endpoint, ticket.user
    if endpoint.state != EndpointState.READY or endpoint.session.status != Status.RUNNING:
        return None
    until = _until(ticket, user, now)
    if until is None:
        return None
    grant = Grant(
        label=label,
        epoch=endpoint.epoch,
        user=user.pk if user else 0,
        login=ticket.login,
        issued_at=now.timestamp(),
        expires_at=until.timestamp(),
    )
    return grant, ticket.next


def _until(ticket: Ticket, user: User | None, now: datetime) -> datetime | None:
    """Return until when the ticket's holder may use the endpoint; None if not even now."""
    longest = now + COOKIE_LIFE
    if user is not None:
        return longest if user.is_active else None
    link = ShareLink.objects.filter(digest=ticket.login, endpoint=ticket.endpoint, revoked_at=None).first()
    return min(longest, link.expires_at) if link and link.expires_at > now else None
