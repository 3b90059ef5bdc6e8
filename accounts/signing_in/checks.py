"""Django system checks of the settings of sign-in."""

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error


def check_login_hours(**kwargs: Any) -> list[CheckMessage]:
    """Return an error for each limit of login sessions below an hour, with which nobody could stay signed in."""
    return [
        Error(f"{name}: {getattr(settings, name)} is below one hour.", hint="Write hours: 24.", id="accounts.E001")
        for name in ("COMPUTE_LOGIN_HOURS", "COMPUTE_LOGIN_IDLE_HOURS")
        if getattr(settings, name) < 1
    ]


def check_breached_passwords(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_BREACHED_PASSWORDS is no file that can be read: no password could be chosen."""
    path = settings.COMPUTE_BREACHED_PASSWORDS
    if not path or (os.path.isfile(path) and os.access(path, os.R_OK)):
        return []
    hint = "Name the file that haveibeenpwned-downloader has written, or leave it empty."
    return [Error(f"COMPUTE_BREACHED_PASSWORDS: {path} cannot be read.", hint=hint, id="accounts.E002")]
