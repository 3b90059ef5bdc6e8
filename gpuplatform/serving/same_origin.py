"""An origin check for the platform's websockets, which browsers do not do themselves."""

from typing import Final

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from proxy.http.asgi import Application, Receive, Scope, Send

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
        await (self._application if is_same_origin(scope) else _refuse)(scope, receive, send)


def is_same_origin(scope: Scope) -> bool:
    """Return whether a request comes from a page of the platform itself, by its headers `Origin` and `Host`."""
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    name, _ = split_domain_port(host)
    schemes = ("https",) if settings.COMPUTE_HTTPS else ("http", "https")
    is_allowed = bool(name) and validate_host(name, settings.ALLOWED_HOSTS)
    return is_allowed and any(origin.lower() == f"{scheme}://{host.lower()}" for scheme in schemes)
