"""The time by which codes of authenticator apps are checked: the database's, on which all web servers agree.

A code is right for a minute and a half. On a web server whose clock is off by more, none would be, or one that has
been seen already would be so again.
"""

from collections.abc import Iterator

from allauth.mfa import app_settings
from allauth.mfa.totp.internal import auth
from django.db import connection


def counters() -> Iterator[int]:
    """Yield the counters whose codes are right now; see django-allauth's function, which this replaces."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT floor(extract(epoch FROM clock_timestamp()))::bigint")
        ((seconds,),) = cursor.fetchall()
    counter, tolerance = seconds // app_settings.TOTP_PERIOD, app_settings.TOTP_TOLERANCE
    yield from range(counter - tolerance, counter + tolerance + 1)


def use() -> None:
    """Have django-allauth, which has no setting for it, check all codes by this time."""
    auth.yield_hotp_counters_from_time = counters
