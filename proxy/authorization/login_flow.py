"""The login at an app's origin, and the other reserved paths there.

The browser is redirected to the platform with the digest of a nonce, which it keeps in a cookie, and comes back with a
single-use ticket for this endpoint; ticket and nonce together are exchanged for the endpoint's cookie. The nonce serves
as `state` and PKCE do in OAuth.
"""

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from proxy.authorization.control_plane import ControlPlane
from proxy.authorization.signing import Grant, Keys, digest
from proxy.http import responses
from proxy.http.headers import cookie_values
from proxy.http.responses import LocalResponse, PageContent
from proxy.routes import Route, RouteTable, Service
from proxy.site import Site

CALLBACK: Final = b"/.gp/callback"
LOGOUT: Final = b"/.gp/logout"
STATUS: Final = b"/.gp/status"
LOOK: Final = b"look"  # as the query of STATUS: the host is to look why the app does not answer
LOOK_SECONDS: Final = 5.0  # between two looks of one process at the apps of a session
MAX_LOOKS: Final = 10_000  # sessions whose last look is remembered
AGAIN: Final = b"/.gp/again"  # the link on the page that says that an app is not running
RESERVED_PATHS: Final = frozenset((CALLBACK, LOGOUT, STATUS, AGAIN))
MAX_COOKIE_SECONDS: Final = 12 * 3600
STATE_SECONDS: Final = 120
TICKET: Final = re.compile(rb"t=([A-Za-z0-9_-]{1,100})")  # the whole query
STATE: Final = re.compile(rb"([A-Za-z0-9_-]{43})(?:\.([0-9]{1,5}))?")  # a nonce, and the port to return to
NEXT: Final = re.compile(r"/(?![/\\])[!-~]{0,1990}")  # on the app's own origin; browsers drop tabs and line breaks


@dataclass(slots=True, eq=False)
class ReservedRequest:
    """A request for one of the reserved paths on an app's origin."""

    path: bytes
    query: bytes
    method: bytes
    cookie: bytes
    label: str
    listen_port: int | None  # None: the port that all apps share
    expires_at: float | None  # of the access to the endpoint, in Unix seconds; None: no access
    condition: dict[str, Any]  # of the app, as its user may know it


class LoginFlow:
    """Starts logins, and serves the reserved paths."""

    def __init__(
        self,
        site: Site,
        table: RouteTable,
        keys: Keys,
        control_plane: ControlPlane,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._site = site
        self._table = table
        self._keys = keys
        self._control_plane = control_plane
        self._now = now
        self._looked_at: dict[str, float] = {}  # Unix seconds, by session

    def start(
        self, route: Route | Service, target: bytes, cookie: bytes, listen_port: int | None, own_host: str = ""
    ) -> LocalResponse:
        """Return the redirect to the platform, with a cookie for the nonce.

        It leads back to `own_host`, if the request came to that of a service's own names. A nonce that the browser has
        already is reused, so that logins in two windows at once both succeed.
        """
        name = self._site.state_cookie(listen_port)
        back_to = None if self._site.is_by_port else listen_port  # by port, it is in the cookie's name
        state = _state(cookie_values(cookie, name.encode()), back_to) or secrets.token_urlsafe(32).encode()
        if back_to and b"." not in state:
            state += b".%d" % back_to
        path = target.decode("latin-1")
        query = {"h": route.label, "s": digest(state.decode()), "next": path if NEXT.fullmatch(path) else "/"}
        if own_host:
            query["at"] = own_host
        state_cookie = self._set_cookie(name, state.decode(), STATE_SECONDS)
        return responses.redirect(f"{self._site.platform_url}/apps/authorize?{urlencode(query)}", state_cookie)

    async def serve(self, request: ReservedRequest) -> LocalResponse:
        """Return the response at a reserved path."""
        if request.path == STATUS:
            return await self._status(request)
        if request.path == LOGOUT:
            return self._log_out(request)
        if request.path == AGAIN:
            return responses.redirect(self._again_url(request.label))
        if request.method != b"GET":
            return responses.text(405, "GET it.", (b"Allow", b"GET"), closes=True)
        return await self._exchange_ticket(request)

    async def _exchange_ticket(self, request: ReservedRequest) -> LocalResponse:
        """Exchange a ticket for the endpoint's cookie."""
        ticket = TICKET.fullmatch(request.query)
        states = cookie_values(request.cookie, self._site.state_cookie(request.listen_port).encode())
        if not ticket or len(states) != 1 or not STATE.fullmatch(states[0]):
            return self._refuse()
        redeemed = await self._control_plane.redeem(ticket[1].decode(), request.label, digest(states[0].decode()))
        if redeemed is None:
            return self._refuse()
        grant, path = redeemed
        route = self._table.find(request.label)  # looked up after the wait, in which it may have gone
        if route is None or route.epoch != grant.epoch:
            await self._table.refresh(request.label)
            route = self._table.find(request.label)
        if route is None:
            return self._refuse()
        if (grant.label, grant.epoch) != (route.label, route.epoch) or not NEXT.fullmatch(path):
            return self._refuse()
        return self._set_grant(request, grant, route, states[0], path)

    def _set_grant(
        self, request: ReservedRequest, grant: Grant, route: Route | Service, state: bytes, path: str
    ) -> LocalResponse:
        now = self._now()
        grant = replace(grant, expires_at=min(grant.expires_at, now + MAX_COOKIE_SECONDS))
        seconds = int(grant.expires_at - now)
        if seconds <= 0:
            return self._refuse()
        port = state.partition(b".")[2]
        origin = self._site.origin(route.label, route.listen_port) if port == b"%d" % (route.listen_port or 0) else ""
        return responses.redirect(
            origin + path,
            self._set_cookie(self._site.cookie(request.listen_port), grant.to_cookie(self._keys), seconds),
            self._set_cookie(self._site.state_cookie(request.listen_port), "", 0),
        )

    def _refuse(self) -> LocalResponse:
        words = PageContent(
            title="This link was used already, or is too old",
            text="It opens the app once, within 30 seconds, in the browser that asked for it.",
            link=("/", "Open the app"),
        )
        return responses.page(403, words)

    def _log_out(self, request: ReservedRequest) -> LocalResponse:
        words = PageContent(title="Logged out of this app", text="You are still logged in at the platform.")
        return responses.page(200, words, self._set_cookie(self._site.cookie(request.listen_port), "", 0))

    async def _status(self, request: ReservedRequest) -> LocalResponse:
        expires_at = request.expires_at
        if expires_at is None:
            return responses.text(401, "Log in to open this app.")
        if request.query == LOOK:
            await self._look(request.label)
        until = None if expires_at == float("inf") else int(expires_at)
        return responses.json_text(200, json.dumps({"app": request.label, "expires_at": until, **request.condition}))

    def _again_url(self, label: str) -> str:
        """Return the page where the owner of an app starts it again, or sees why a service does not serve."""
        if self._table.get_service(label):
            return self._site.deployment_url(label)
        return f"{self._site.launch_url(label)}?stopped"

    async def _look(self, label: str) -> None:
        """Have the host look at a READY app; at most once in LOOK_SECONDS for the apps of a session, whoever asks."""
        route, now = self._table.get(label), self._now()
        if route is None or not route.is_ready or now - self._looked_at.get(route.session, 0.0) < LOOK_SECONDS:
            return
        if len(self._looked_at) >= MAX_LOOKS:
            self._looked_at.clear()
        self._looked_at[route.session] = now
        await self._control_plane.look(label)

    def _set_cookie(self, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._site.is_secure else ""
        return b"Set-Cookie", f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}".encode()


def _state(values: list[bytes], back_to: int | None) -> bytes | None:
    """Return that of the browser's states which leads back to this port."""
    for value in values:
        match = STATE.fullmatch(value)
        if match and match[2] == (b"%d" % back_to if back_to else None):
            return value
    return None
