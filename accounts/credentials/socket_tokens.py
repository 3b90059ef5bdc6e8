"""Websockets of programs, which authenticate by an API token in place of a browser's login."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from channels.db import database_sync_to_async
from django.utils.translation import gettext as _
from django.utils.translation import override
from rest_framework.exceptions import APIException, PermissionDenied

from accounts.credentials import tokens
from accounts.credentials.authentication import ApiTokenAuthentication
from accounts.models import ApiToken, TokenScope, User
from restapi import problems
from translation.languages import language_of_scope

Scope = dict[str, Any]
AsgiApplication = Callable[[Scope, Any, Any], Awaitable[Any]]

SCOPE_KEY: Final = "api_token"  # key of the scope: the token's primary key


class TokenSockets:
    """ASGI middleware that sends handshakes with `Authorization: Token ...` to one application, others to another.

    No page can send that header with a handshake, so the origin of such a one needs no check, and its cookies count
    for nothing. A token that may only read opens none.
    """

    def __init__(self, for_tokens: AsgiApplication, for_browsers: AsgiApplication) -> None:
        self._for_tokens = for_tokens
        self._for_browsers = for_browsers

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass the handshake on with the token's user, or refuse it with problem details."""
        scheme, _space, text = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"token":
            await self._for_browsers(scope, receive, send)
            return
        try:
            user, token = await database_sync_to_async(_authenticated)(text.strip(), language_of_scope(scope))
        except APIException as error:
            await _refuse(scope, receive, send, error)
            return
        await self._for_tokens({**scope, "user": user, SCOPE_KEY: token.pk}, receive, send)


def _authenticated(text: bytes, language: str) -> tuple[User, ApiToken]:
    """Return the user and the token of this text. Raises APIException."""
    with override(language):
        user, token = ApiTokenAuthentication().authenticate_credentials(text)
        if token.scope == TokenScope.READ:
            raise PermissionDenied(_("This token may only be used for reading."))
        tokens.note_use(token)
        return user, token


async def _refuse(scope: Scope, receive: Any, send: Any, error: APIException) -> None:
    """Refuse the handshake; 403 without a body where the server cannot send another response."""
    await receive()  # websocket.connect
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    body = json.dumps(problems.problem(error.status_code, str(error.detail))).encode()
    headers = [(b"content-type", problems.MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
