"""How passwords are hashed, and which are refused beside those that Django's validators refuse."""

import hashlib
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

PRODUCT: Final = "gpuplatform"
SHORTEST_WORD: Final = 4
SHORTEST_REST: Final = 8  # characters beside the word, as many as a password has at least
DIGEST_LENGTH: Final = 40  # of SHA-1, in hexadecimal digits


class Argon2idHasher(Argon2PasswordHasher):
    """Argon2id (RFC 9106) with the least that OWASP's Password Storage Cheat Sheet asks for.

    A sign-in takes some 50 ms of a core, a tenth of PBKDF2's, and 19 MiB: a class that signs in at once need not wait.
    Django's own parameters, 100 MiB in eight threads, would have a web process take 800 MiB for eight of them.
    """

    time_cost = 2
    memory_cost = 19 * 1024  # KiB
    parallelism = 1


class ContextWordValidator:
    """Refuses a password that is a name of the platform with little beside it; who knows the site tries these first."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError for such a password."""
        rest = plain = re.sub(r"[\W_]", "", password.lower())
        for word in sorted(context_words(), key=len, reverse=True):
            rest = rest.replace(word, "")
            if rest != plain and len(rest) < SHORTEST_REST:
                text = _("This password is mostly “%(word)s”, a name of this platform: choose another.")
                raise ValidationError(text, code="password_context_word", params={"word": word})

    def get_help_text(self) -> str:
        """Return "": the error says it."""
        return ""


def context_words() -> set[str]:
    """Return the product's name, and what the platform's host name consists of."""
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or ""
    labels = {re.sub(r"\W", "", label) for label in host.split(".")}
    return {PRODUCT, *(label for label in labels if len(label) >= SHORTEST_WORD and not label.isdigit())}


class BreachedPasswordValidator:
    """Refuses a password that is in the file COMPUTE_BREACHED_PASSWORDS of published ones."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError for such a password, OSError where the file cannot be read."""
        if settings.COMPUTE_BREACHED_PASSWORDS and is_listed(password, Path(settings.COMPUTE_BREACHED_PASSWORDS)):
            text = _("This password was published with others that were stolen elsewhere: choose another.")
            raise ValidationError(text, code="password_breached")

    def get_help_text(self) -> str:
        """Return "": the error says it."""
        return ""


def is_listed(password: str, path: Path) -> bool:
    """Return whether the SHA-1 digest of a password begins a line of a file of such lines in order, by bisection."""
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper().encode()
    with path.open("rb") as file:

        def found_from(place: int) -> bytes:
            """Return the digest of the first line that begins there or later; b"" at the end."""
            file.seek(max(place - 1, 0))
            if place:
                file.readline()
            return file.readline()[:DIGEST_LENGTH].upper()

        low, high = 0, path.stat().st_size
        while low < high:
            middle = (low + high) // 2
            found = found_from(middle)
            low, high = (middle + 1, high) if found and found < digest else (low, middle)
        return found_from(low) == digest
