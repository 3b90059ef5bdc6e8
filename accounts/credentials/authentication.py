"""Authentication of API requests by tokens."""

import re
from typing import Any, Final

from django.utils.translation import gettext as _
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from accounts.credentials import tokens
from accounts.models import ApiToken, TokenScope

_TOKEN: Final = re.compile(rb"[0-9A-Za-z]{16,100}")


class ApiTokenAuthentication(TokenAuthentication):  # type: ignore[misc]  # knox has no types
    """knox's authentication, with the scope of tokens; malformed ones get 401 without a query."""

    def authenticate(self, request: Request) -> Any:
        """Return (user, token row), None without a token. Raises PermissionDenied where the token may only read."""
        found = super().authenticate(request)
        if found is not None:
            token = found[1]
            if token.scope == TokenScope.READ and request.method not in SAFE_METHODS:
                raise PermissionDenied(_("This token may only be used for reading."))
            tokens.note_use(token)
        return found

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

    def _cleanup_token(self, auth_token: ApiToken) -> bool:
        """Return whether the token has expired; knox would read all tokens of its user here, for each request."""
        return auth_token.has_expired
