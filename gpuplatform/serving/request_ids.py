"""Gives each request and websocket an id, by which its log lines, and those of the tasks that it sends, are found."""

import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from operations.logs import lines as log_lines

HEADER: Final = b"x-request-id"
GIVEN: Final = re.compile(rb"[A-Za-z0-9._-]{8,64}")

AsgiApplication = Callable[[Any, Any, Any], Awaitable[None]]


class RequestIds:
    """ASGI middleware: `X-Request-ID` of the request where it is well-formed, else a random one, is in the response."""

    def __init__(self, application: AsgiApplication) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Begin the context of the request's log lines, and pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        given = dict(scope["headers"]).get(HEADER, b"")
        request_id = given if GIVEN.fullmatch(given) else secrets.token_hex(8).encode()
        log_lines.begin(request_id=request_id.decode())

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER, request_id)]}
            await send(message)

        await self._application(scope, receive, send_with_id)


class SocketUsers:
    """ASGI middleware behind authentication that names the user and the session of a websocket in its log lines."""

    def __init__(self, application: AsgiApplication) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the websocket on."""
        context = log_lines.current()
        if context and (user_id := getattr(scope.get("user"), "pk", None)) is not None:
            context.fields["user_id"] = user_id
        await self._application(scope, receive, send)
