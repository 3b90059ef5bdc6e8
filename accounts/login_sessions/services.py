"""Login sessions as their owners see them: which browsers are signed in, since when, and from where.

Django's table of login sessions names neither user nor browser. `LoginSession` adds both to a row of it, and goes
with it: signing out, expiry and a changed password need nothing more.
"""

import logging
from datetime import datetime, timedelta
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import LoginSession, User
from accounts.models.user_agents import AGENT_LENGTH

logger = logging.getLogger(__name__)

SEEN_AT: Final = "seen_at"  # in the login session: when its row was last written, in seconds since the epoch
SEEN_EVERY: Final = timedelta(minutes=5)


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Log and record the sign-in; a request for an API token has no login session."""
    methods = [str(each["method"]) for each in request.session.get("account_authentication_methods", ())]
    logger.info("user %s: signed in from %s by %s", user.pk, address_of(request), "+".join(methods) or request.path)
    if request.session.get(SESSION_KEY) == str(user.pk):
        record(request)


def record(request: HttpRequest) -> None:
    """Write who is signed in in this request's login session, from where and with which browser."""
    session, now = request.session, timezone.now()
    if session.session_key is None:
        session.create()
    session[SEEN_AT] = int(now.timestamp())
    seen = {
        "user_id": int(session[SESSION_KEY]),
        "last_seen_at": now,
        "address": address_of(request),
        "agent": _agent(request),
    }
    try:
        with transaction.atomic():
            login, _ = LoginSession.objects.update_or_create(session_id=session.session_key, defaults=seen)
        session.set_expiry(end_of(login))
    except IntegrityError:  # the login, or the account, has ended meanwhile
        logger.info("a login session ended while it was recorded")


def end_of(login: LoginSession) -> datetime:
    """Return when the browser has to sign in again: so long after the sign-in, or earlier without requests."""
    idle = login.last_seen_at + timedelta(hours=settings.COMPUTE_LOGIN_IDLE_HOURS)
    return min(idle, login.started_at + timedelta(hours=settings.COMPUTE_LOGIN_HOURS))


def record_if_due(request: HttpRequest) -> None:
    """Record the login session again if it was last recorded a while ago; most requests cost no query."""
    session = request.session
    due = timezone.now() - SEEN_EVERY
    if SESSION_KEY in session and session.get(SEEN_AT, 0) < due.timestamp():
        record(request)


def open_logins(user: User) -> QuerySet[LoginSession]:
    """Return the login sessions of the user that have not expired, the last used first."""
    return user.logins.filter(session__expire_date__gt=timezone.now()).order_by("-last_seen_at", "-pk")


def end(login: LoginSession) -> None:
    """End the login session: its browser is signed out, its live pages and apps close within a second."""
    import_module(settings.SESSION_ENGINE).SessionStore(login.session_id).delete()
    logger.info("user %s: a login session was ended", login.user_id)


def end_all(user: User, *, but: str | None = None) -> int:
    """End the login sessions of the user, but the one of this session key; return how many."""
    ended = list(user.logins.exclude(session_id=but) if but else user.logins.all())
    for login in ended:
        end(login)
    return len(ended)


def address_of(request: HttpRequest) -> str | None:
    """Return the address that a request came from; None where it has none."""
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:  # a socket file, or a test without one
        return None


def _agent(request: HttpRequest) -> str:
    return str(request.META.get("HTTP_USER_AGENT", "")).replace("\0", "")[:AGENT_LENGTH]
