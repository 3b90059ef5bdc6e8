"""Whose a request is, before Django has looked: the user of its credential, else the address of its client."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from django.conf import settings

from proxy.http.asgi import Scope
from proxy.pending import source_of

MAX_CREDENTIALS: Final = 4096  # of users that were seen last, in one process
VALID_SECONDS: Final = 600.0


class Principals:
    """Names the principal of each request: `user 7` or `address 192.0.2.1`.

    A login's cookie or a token counts as its user once Django has confirmed it, and until VALID_SECONDS after that.
    Before, and where it is forged, the request is one of its client's address. Of credentials only digests are stored.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._users: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def principal_of(self, scope: Scope) -> str:
        """Return the name of who sent the request."""
        user_id, until = self._users.get(_credential(scope), (0, 0.0))
        if self._clock() < until:
            return f"user {user_id}"
        return f"address {source_of(scope['client'][0]) if scope.get('client') else ''}"

    def learn(self, scope: Scope, user_id: int | None) -> None:
        """Store who sent the request, as Django has found; None if it was nobody."""
        credential = _credential(scope)
        self._users.pop(credential, None)
        if user_id is None or not credential:
            return
        self._users[credential] = (user_id, self._clock() + VALID_SECONDS)
        if len(self._users) > MAX_CREDENTIALS:
            self._users.popitem(last=False)


def _credential(scope: Scope) -> bytes:
    """Return the digest of the request's token or login, empty without one."""
    headers = dict(scope["headers"])
    found = headers.get(b"authorization") or _login(headers.get(b"cookie", b""))
    return hashlib.sha256(found).digest() if found else b""


def _login(cookies: bytes) -> bytes:
    name = settings.SESSION_COOKIE_NAME.encode()
    for cookie in cookies.split(b";"):
        key, _, value = cookie.strip().partition(b"=")
        if key == name:
            return value
    return b""
