"""Revokes cookies of apps before they expire: by a row, and by a message to proxies and websockets."""

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from accounts.models import User
from deployments.models import DeploymentTicket
from proxy.authorization.login_flow import MAX_COOKIE_SECONDS
from proxy.authorization.signing import digest
from sessions import notify
from sessions.models import Revocation, ShareLink, Ticket

COOKIE_LIFE: Final = timedelta(seconds=MAX_COOKIE_SECONDS)
MAX_CLOCK_SKEW: Final = timedelta(minutes=5)  # between two web servers
RETENTION: Final = timedelta(days=1)  # by then every cookie that a revocation concerns has expired


def revoke_login(login: str, at: datetime | None = None) -> None:
    """Revoke cookies issued before `at` for this digest of a login session or share link; by default, for all time.

    A login that has ended issues no more cookies, so it is revoked beyond now by MAX_CLOCK_SKEW.
    """
    row = Revocation.objects.create(login=login, at=at or timezone.now() + MAX_CLOCK_SKEW)
    notify.publish_to_proxies({"login": login, "at": row.at.timestamp()})


def revoke_login_session(session_key: str) -> None:
    """Revoke the cookies of a login session that has ended."""
    login = digest(session_key)
    revoke_login(login)
    notify.login_changed(login)


def revoke_user(user: User) -> None:
    """Revoke all cookies of this user, and those issued by share links to the user's apps."""
    row = Revocation.objects.create(user=user)
    notify.publish_to_proxies({"user": user.pk, "at": row.at.timestamp()})
    notify.account_changed(user.pk)
    links = ShareLink.objects.filter(endpoint__session__owner=user, revoked_at=None)
    for login in links.values_list("digest", flat=True):
        revoke_login(login, row.at)


def revoke_logins_of(user: User) -> None:
    """Revoke the cookies of each login session of this user, which outlives the deletion of the user's row."""
    notify.account_changed(user.pk)
    tickets = Ticket.objects.filter(user=user).values_list("login", flat=True)
    of_deployments = DeploymentTicket.objects.filter(user=user).values_list("login", flat=True)
    for login in {*tickets, *of_deployments}:
        revoke_login(login)
