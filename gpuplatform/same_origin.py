"""An origin check for the platform's websockets, which browsers do not do themselves."""

from typing import Final

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from proxy.asgi import Application
from proxy.asgi_request import Receive, Scope, Send

_refuse: Final = WebsocketDenier.as_asgi()


class SameOrigin:
    """ASGI middleware that refuses handshakes with 403 unless their origin is the requested host and port.

    Origins in CSRF_TRUSTED_ORIGINS are accepted too. Checking the host alone would not be enough: apps of sessions at
    other ports share it, and its cookies.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the handshake on, or refuse it."""
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        await (self._application if _is_own(origin, host) else _refuse)(scope, receive, send)


def _is_own(origin: str, host: str) -> bool:
    """Return whether a page of `origin` may open a websocket of `host`, both as in the headers."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    name, _ = split_domain_port(host)
    schemes = ("https",) if settings.COMPUTE_HTTPS else ("http", "https")
    is_allowed = bool(name) and validate_host(name, settings.ALLOWED_HOSTS)
    return is_allowed and any(origin.lower() == f"{scheme}://{host.lower()}" for scheme in schemes)
