"""Django system checks of the settings of sign-in."""

import os
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error

MAX_LOGIN_HOURS: Final = 10 * 365 * 24


def check_login_hours(**kwargs: Any) -> list[CheckMessage]:
    """Return an error for each limit of login sessions with which nobody could stay signed in, or sign in at all."""
    text = f"is not between one hour and ten years ({MAX_LOGIN_HOURS})."
    return [
        Error(f"{name}: {getattr(settings, name)} {text}", hint="Write hours: 24.", id="accounts.E001")
        for name in ("COMPUTE_LOGIN_HOURS", "COMPUTE_LOGIN_IDLE_HOURS")
        if not 1 <= getattr(settings, name) <= MAX_LOGIN_HOURS
    ]


def check_breached_passwords(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_BREACHED_PASSWORDS is no file that can be read: no password could be chosen."""
    path = settings.COMPUTE_BREACHED_PASSWORDS
    if not path or (os.path.isfile(path) and os.access(path, os.R_OK)):
        return []
    hint = "Name the file that haveibeenpwned-downloader has written, or leave it empty."
    return [Error(f"COMPUTE_BREACHED_PASSWORDS: {path} cannot be read.", hint=hint, id="accounts.E002")]
