"""Second factors of accounts: codes that are tried, what a new password means for passkeys, and removing them."""

import logging
from typing import Any, Final

from allauth.core import context, ratelimit
from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_used
from axes.handlers.proxy import AxesProxyHandler
from django.contrib.auth.signals import user_login_failed
from django.core.cache import cache
from django.dispatch import receiver
from django.http import HttpRequest

from accounts import audit
from accounts.login_sessions import services as logins
from accounts.models import User

logger = logging.getLogger(__name__)

PRIMARY: Final = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)  # recovery codes stand in for these
CODE_SECONDS: Final = app_settings.TOTP_PERIOD * (2 * app_settings.TOTP_TOLERANCE + 1)  # that a code of an app is right
NEEDS_PASSWORD: Final = "needs_password"  # noqa: S105  # a flag in a passkey's data


def has_any(user: User) -> bool:
    """Return whether a password alone does not sign the user in."""
    return bool(Authenticator.objects.filter(user=user, type__in=PRIMARY).exists())


def may_try(request: HttpRequest, user: User) -> bool:
    """Return whether the account is not locked from the request's address; if it is, the page of that is shown."""
    credentials = {"username": user.email}
    if AxesProxyHandler.is_allowed(request, credentials):
        return True
    request.axes_locked_out, request.axes_credentials = True, credentials  # type: ignore[attr-defined]  # for axes
    return False


def count_failure(request: HttpRequest, user: User) -> None:
    """Count a wrong code as a failed sign-in of the account."""
    user_login_failed.send(sender=__name__, credentials={"username": user.email}, request=request)


def is_right(request: HttpRequest, user: User, code: str) -> bool:
    """Return whether `code` is one of the user's app or a recovery code, which it uses up; a wrong one is counted."""
    if not ratelimit.consume(context.request, action="login_failed", key=f"mfa-auth-user-{user.pk}"):
        return False
    factors = Authenticator.objects.filter(user=user).exclude(type=Authenticator.Type.WEBAUTHN)
    for factor in () if was_used(user, code) else factors:
        if factor.wrap().validate_code(code):
            note_use(user, code)
            factor.record_usage()
            ratelimit.clear(context.request, action="login_failed", key=f"mfa-auth-user-{user.pk}")
            return True
    count_failure(request, user)
    return False


def was_used(user: User, code: str) -> bool:
    """Return whether the user has used this code of an app already.

    django-allauth lets each be used once in a period, which with a tolerance is less than the code is right for.
    """
    return cache.get(_key_of(user, code)) is not None


def note_use(user: User, code: str) -> None:
    """Note that a right code was used; of those who use it at the same moment, django-allauth has let in one."""
    cache.set(_key_of(user, code), 1, timeout=CODE_SECONDS)


def _key_of(user: User, code: str) -> str:
    digits = "".join(each for each in code if each in "0123456789")  # others are ignored in a code
    return f"second-factor-used:{user.pk}:{digits[:16]}"


def needs_password(passkey: Authenticator) -> bool:
    """Return whether the passkey may not sign in alone, since it was not used with the present password yet."""
    return bool(passkey.data.get(NEEDS_PASSWORD))


def require_password(user: User) -> None:
    """Let no passkey of the user sign in alone until it was used once together with the password.

    A passkey that somebody else has added is worth nothing then, and one of the owner's stays as the second factor.
    """
    for passkey in Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN):
        passkey.data[NEEDS_PASSWORD] = True
        passkey.save(update_fields=["data"])


def remove_all(user: User, *, actor: User) -> int:
    """Remove the second factors of a user who has lost them, and sign the user out; return how many there were."""
    removed, _ = Authenticator.objects.filter(user=user).delete()
    if removed:
        logins.end_all(user)
        audit.record(actor, "remove second factors", user, {"second factors": (str(removed), None)})
        logger.info("user %s: %d second factors were removed", user.pk, removed)
    return int(removed)


@receiver(authenticator_used)
def _used(authenticator: Authenticator, passwordless: bool = False, reauthenticated: bool = False, **_: Any) -> None:
    """Note that a passkey was used as the second factor, after the password."""
    is_second = not passwordless and not reauthenticated
    if is_second and authenticator.data.pop(NEEDS_PASSWORD, None):
        authenticator.save(update_fields=["data"])
