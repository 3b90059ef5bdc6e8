"""How a browser gets the cookie of an endpoint: it is sent to the platform with a digest of a nonce that it keeps, and
comes back with a ticket that is good once, for this endpoint, together with that nonce."""

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from proxy import responses
from proxy.control_plane import ControlPlane
from proxy.headers import cookie_values
from proxy.responses import LocalResponse, PageContent
from proxy.routes import Route, RouteTable
from proxy.signing import Grant, Keys, digest
from proxy.site import Site

CALLBACK: Final = b"/.gp/callback"
LOGOUT: Final = b"/.gp/logout"
STATUS: Final = b"/.gp/status"
AGAIN: Final = b"/.gp/again"  # where the pages lead that say that an app is not running
RESERVED: Final = frozenset((CALLBACK, LOGOUT, STATUS, AGAIN))
MAX_COOKIE_SECONDS: Final = 12 * 3600  # seconds of a cookie
STATE_SECONDS: Final = 120
TICKET: Final = re.compile(rb"t=([A-Za-z0-9_-]{1,100})")  # the whole query
STATE: Final = re.compile(rb"([A-Za-z0-9_-]{43})(?:\.([0-9]{1,5}))?")  # a nonce, and the port to return to
NEXT: Final = re.compile(r"/(?![/\\])[!-~]{0,1990}")  # on the app's own origin; browsers drop tabs and line breaks


@dataclass(slots=True, eq=False)
class ReservedRequest:
    """A request to one of our own paths on an app's origin."""

    path: bytes
    query: bytes
    method: bytes
    cookie: bytes
    label: str
    listen_port: int | None  # which it came by; None: the apps' common one
    expires_at: float | None  # until when the one who asks may use the endpoint, Unix seconds; None: not at all


class LoginFlow:
    """Serves the reserved paths, and begins what ends there."""

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

    def begin(self, route: Route, target: bytes, cookie: bytes, listen_port: int | None) -> LocalResponse:
        """Return the redirect to the platform, which keeps a nonce in the browser.

        A nonce that the browser has already is used again, so that two windows opened at once both arrive.
        """
        name = self._site.state_cookie(listen_port)
        back_to = None if self._site.is_by_port else listen_port  # by port, nothing else is come back to
        state = _state(cookie_values(cookie, name.encode()), back_to) or secrets.token_urlsafe(32).encode()
        if back_to and b"." not in state:
            state += b".%d" % back_to
        path = target.decode("latin-1")
        query = {"h": route.label, "s": digest(state.decode()), "next": path if NEXT.fullmatch(path) else "/"}
        kept = self._set_cookie(name, state.decode(), STATE_SECONDS)
        return responses.redirect(f"{self._site.platform_url}/apps/authorize?{urlencode(query)}", kept)

    async def serve(self, visit: ReservedRequest) -> LocalResponse:
        """Return the answer at a reserved path."""
        if visit.path == STATUS:
            return self._status(visit)
        if visit.path == LOGOUT:
            return self._log_out(visit)
        if visit.path == AGAIN:
            return responses.redirect(f"{self._site.launch_url(visit.label)}?stopped")
        if visit.method != b"GET":
            return responses.text(405, "GET it.", (b"Allow", b"GET"), closes=True)
        return await self._arrive(visit)

    async def _arrive(self, visit: ReservedRequest) -> LocalResponse:
        """Turn a ticket into the endpoint's cookie."""
        ticket = TICKET.fullmatch(visit.query)
        states = cookie_values(visit.cookie, self._site.state_cookie(visit.listen_port).encode())
        if not ticket or len(states) != 1 or not STATE.fullmatch(states[0]):
            return self._refuse()
        redeemed = await self._control_plane.redeem(ticket[1].decode(), visit.label, digest(states[0].decode()))
        route = self._table.get(visit.label)  # read after the wait: it may have gone
        if redeemed is None or route is None:
            return self._refuse()
        grant, path = redeemed
        if (grant.label, grant.epoch) != (route.label, route.epoch) or not NEXT.fullmatch(path):
            return self._refuse()
        return self._admit(visit, grant, route, states[0], path)

    def _admit(self, visit: ReservedRequest, grant: Grant, route: Route, state: bytes, path: str) -> LocalResponse:
        now = self._now()
        grant = replace(grant, expires_at=min(grant.expires_at, now + MAX_COOKIE_SECONDS))
        seconds = int(grant.expires_at - now)
        if seconds <= 0:
            return self._refuse()
        port = state.partition(b".")[2]
        origin = self._site.origin(route.label, route.listen_port) if port == b"%d" % (route.listen_port or 0) else ""
        return responses.redirect(
            origin + path,
            self._set_cookie(self._site.cookie(visit.listen_port), grant.to_cookie(self._keys), seconds),
            self._set_cookie(self._site.state_cookie(visit.listen_port), "", 0),
        )

    def _refuse(self) -> LocalResponse:
        words = PageContent(
            title="This link was used already, or is too old",
            text="It opens the app once, within 30 seconds, in the browser that asked for it.",
            link=("/", "Open the app"),
        )
        return responses.page(403, words)

    def _log_out(self, visit: ReservedRequest) -> LocalResponse:
        words = PageContent(title="Logged out of this app", text="You are still logged in at the platform.")
        return responses.page(200, words, self._set_cookie(self._site.cookie(visit.listen_port), "", 0))

    def _status(self, visit: ReservedRequest) -> LocalResponse:
        expires_at = visit.expires_at
        if expires_at is None:
            return responses.text(401, "Log in to open this app.")
        until = None if expires_at == float("inf") else int(expires_at)
        return responses.json_text(200, json.dumps({"app": visit.label, "expires_at": until}))

    def _set_cookie(self, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._site.is_secure else ""
        return b"Set-Cookie", f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}".encode()


def _state(kept: list[bytes], back_to: int | None) -> bytes | None:
    """Return the nonce, of those that the browser keeps, that leads back to this port."""
    for value in kept:
        match = STATE.fullmatch(value)
        if match and match[2] == (b"%d" % back_to if back_to else None):
            return value
    return None
