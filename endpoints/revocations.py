"""What voids the cookies of apps before their time: written down, and told to proxies and websockets at once."""

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from accounts.models import User
from proxy.login_flow import MAX_COOKIE_SECONDS
from proxy.signing import digest
from sessions import notify
from sessions.models import Revocation, ShareLink, Ticket

COOKIE_LIFE: Final = timedelta(seconds=MAX_COOKIE_SECONDS)
CLOCKS_DIFFER: Final = timedelta(minutes=5)  # those of two web servers, at most
RETENTION: Final = timedelta(days=1)  # after which every cookie that a revocation could be about has expired


def revoke_login(login: str, at: datetime | None = None) -> None:
    """Void what this login session or share link, named by its digest, has opened: until `at`, or for good.

    One that never comes back is void a little beyond now, for another server's clock may have been ahead of ours.
    """
    row = Revocation.objects.create(login=login, at=at or timezone.now() + CLOCKS_DIFFER)
    notify.publish_to_proxies({"login": login, "at": row.at.timestamp()})


def revoke_login_session(session_key: str) -> None:
    """Void what was opened from a login session that has ended."""
    login = digest(session_key)
    revoke_login(login)
    notify.login_changed(login)


def revoke_user(user: User) -> None:
    """Void all that this user has opened until now, and what others have opened by the user's share links."""
    row = Revocation.objects.create(user=user)
    notify.publish_to_proxies({"user": user.pk, "at": row.at.timestamp()})
    notify.account_changed(user.pk)
    links = ShareLink.objects.filter(endpoint__session__owner=user, revoked_at=None)
    for login in links.values_list("digest", flat=True):
        revoke_login(login, row.at)


def revoke_logins_of(user: User) -> None:
    """Void what this user has opened, by login session: what holds when the user's row is gone."""
    notify.account_changed(user.pk)
    for login in set(Ticket.objects.filter(user=user).values_list("login", flat=True)):
        revoke_login(login)
