"""Takes cookies with escapes out of requests: to undo them takes Python before 3.11.10 the square of their length."""

from typing import Any

from gpuplatform.serving.request_ids import AsgiApplication


class PlainCookies:
    """ASGI middleware that drops each cookie with a backslash; the platform's own have none, those of apps may.

    They are dropped and not refused, since an app can set a cookie for the platform's host name, too.
    """

    def __init__(self, application: AsgiApplication) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request or websocket on."""
        if scope["type"] in ("http", "websocket"):
            headers = [(name, _plain(value) if name == b"cookie" else value) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._application(scope, receive, send)


def _plain(cookies: bytes) -> bytes:
    return b";".join(each for each in cookies.split(b";") if b"\\" not in each) if b"\\" in cookies else cookies
