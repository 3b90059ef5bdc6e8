"""Authentication of API requests by knox tokens."""

import re
from typing import Any, Final

from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

_TOKEN: Final = re.compile(rb"[0-9A-Za-z]{16,100}")


class ApiTokenAuthentication(TokenAuthentication):  # type: ignore[misc]  # knox has no types
    """knox's authentication, which also responds 401 to malformed tokens, without decoding them or a query."""

    def authenticate_credentials(self, token: bytes) -> Any:
        """Return (user, token row). Raises AuthenticationFailed for an unknown, expired or malformed token."""
        if not _TOKEN.fullmatch(token):
            raise AuthenticationFailed("Invalid token.")
        try:
            return super().authenticate_credentials(token)
        except AuthenticationFailed as error:
            if str(error.detail) == "Invalid token.":
                raise AuthenticationFailed("The token is unknown or has expired; get a new one.") from error
            raise
