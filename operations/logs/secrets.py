"""Keeps secrets that are part of URLs out of the log."""

import logging
import re
from typing import Final

SECRET_PATH: Final = re.compile(r"(/apps/shared/|/accounts/password/reset/key/|/accounts/invitations/)[A-Za-z0-9_-]+")


class HideSecrets(logging.Filter):
    """Logging filter that shortens addresses with secrets, which Django's warnings quote whole.

    They are those of share links, of links for new passwords, and of invitations.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record's message where it has such an address; drop no record."""
        message = record.getMessage()
        if SECRET_PATH.search(message):
            record.msg, record.args = SECRET_PATH.sub(r"\1...", message), None
        return True
