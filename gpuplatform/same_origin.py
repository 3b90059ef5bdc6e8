"""Which pages may open the platform's websockets, which browsers themselves let any page do."""

from typing import Final

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from proxy.asgi import Application
from proxy.asgi_request import Receive, Scope, Send

_refuse: Final = WebsocketDenier.as_asgi()


class SameOrigin:
    """Lets in pages of the host and port that they ask, and of CSRF_TRUSTED_ORIGINS; all others get 403.

    The host alone would not do: an app of a session, or another program's port, may share it, and our cookies with it.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a handshake, or refuse it."""
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        await (self._application if _is_own(origin, host) else _refuse)(scope, receive, send)


def _is_own(origin: str, host: str) -> bool:
    """Return whether `origin`, as a browser writes it, may open what is asked of `host`."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    name, _ = split_domain_port(host)
    schemes = ("https",) if settings.COMPUTE_HTTPS else ("http", "https")
    is_allowed = bool(name) and validate_host(name, settings.ALLOWED_HOSTS)
    return is_allowed and any(origin.lower() == f"{scheme}://{host.lower()}" for scheme in schemes)
