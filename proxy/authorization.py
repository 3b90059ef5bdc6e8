"""Who may send what to which app: the one place where both carriers have a request judged.

Pure: given the head of a request, the routes, the keys and the time, it says what to forward or what to answer. Only
the end of a log-in asks anybody, namely the `Authority`.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from proxy import responses
from proxy.control_plane import ControlPlane
from proxy.gateway_tokens import GatewayTokens
from proxy.headers import (
    UPGRADE_HEADERS,
    ClassifiedHeaders,
    Header,
    MalformedRequestError,
    RequestHead,
    classify,
    cookie_values,
    filter_response_headers,
    strip_platform_cookies,
    without_caching,
)
from proxy.login_flow import RESERVED, LoginFlow, ReservedRequest
from proxy.responses import LocalResponse, PageContent
from proxy.routes import Route, RouteTable
from proxy.signing import Grant, InvalidSignatureError, Keys
from proxy.site import Site

Network = IPv4Network | IPv6Network
NOT_FOR_APPS: Final = frozenset((b"CONNECT", b"TRACE"))  # a tunnel elsewhere, and an echo of what we have added
SAFE_METHODS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
ALLOW: Final = (b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
EMBEDDED: Final = frozenset((b"iframe", b"frame", b"embed", b"object", b"fencedframe"))
HOST: Final = re.compile(rb"[a-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?")
LENGTH: Final = re.compile(rb"[0-9]{1,18}")
ANONYMOUS: Final = ("", 0, 0.0, float("inf"))  # log-in, user, and the times of a cookie
REMEMBERED: Final = 10_000  # visitors; the oldest are looked up anew
LONGEST_REMEMBERED: Final = 4096  # bytes of cookies; anybody may send a public app as many as a head holds
API_SCHEME: Final = b"token "  # of the platform's own API: such a header was not meant for an app
CONTINUE: Final = b"100-continue"


@dataclass(slots=True, eq=False)
class Principal:
    """Somebody at an endpoint, with what their requests to it have in common. Login "" and user 0: anonymous."""

    route: Route
    login: str
    user: int
    issued_at: float
    expires_at: float  # Unix seconds, infinite for the anonymous
    is_reachable: bool  # whether the container's address is one that may be dialled
    headers: list[Header]  # what all requests of this visitor bring


@dataclass(slots=True, eq=False)
class ForwardDecision:
    """A request to pass on, written anew. `length` is that of its body, None when the body is chunked."""

    principal: Principal
    method: bytes
    target: bytes
    headers: list[Header]
    length: int | None
    is_websocket: bool
    expects_continue: bool
    is_http_10: bool
    client: str  # address of the visitor

    def to_bytes(self) -> bytes:
        """Return the head as sent to the app, up to and with the empty line."""
        version = b" HTTP/1.0\r\n" if self.is_http_10 else b" HTTP/1.1\r\n"
        lines = [name + b": " + value for name, value in self.headers]
        return self.method + b" " + self.target + version + b"\r\n".join(lines) + b"\r\n\r\n"


Decision = ForwardDecision | LocalResponse | ReservedRequest


class BrowserAuthorizer:
    """Judges the requests of browsers."""

    def __init__(
        self,
        *,
        site: Site,
        table: RouteTable,
        keys: Keys,
        subnets: Sequence[Network],
        control_plane: ControlPlane,
        trusted_proxies: Sequence[Network] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Containers are only ever dialled inside `subnets`; `fronts` are reverse proxies that name their client."""
        self.site = site
        self.table = table
        self._keys = keys
        self._subnets = subnets
        self._trusted_proxies = trusted_proxies
        self._now = now
        self._login_flow = LoginFlow(site, table, keys, control_plane, now)
        self._principals: dict[tuple[bytes, bytes], Principal] = {}
        self._gateway_tokens = GatewayTokens(keys)
        self._scheme = site.scheme.encode()

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request from the address `peer`, on a port of its own if the endpoint has one."""
        if request.method in NOT_FOR_APPS:
            return responses.text(405, "Apps do not get such requests.", ALLOW, closes=True)
        try:
            classified = classify(request.headers)
            check_framing(request, classified.noted)
            return self._decide(request, classified, peer, listen_port)
        except MalformedRequestError as error:
            return responses.text(400, f"Bad request: {error}", closes=True)

    async def serve(self, reserved: ReservedRequest) -> LocalResponse:
        """Return the answer at a reserved path."""
        return await self._login_flow.serve(reserved)

    def response_headers(self, principal: Principal, headers: list[Header]) -> list[Header]:
        """Return what of the headers of an app's answer the visitor gets, without framing."""
        passed = filter_response_headers(headers, is_public=principal.route.is_public)
        return without_caching(passed) if self.site.is_by_port else passed

    def still_holds(self, principal: Principal) -> bool:
        """Return whether a visitor could enter now as before."""
        route = principal.route
        if self.table.get(route.label) is not route or principal.expires_at <= self._now():
            return False
        return not principal.login or not self.table.is_void(principal.login, principal.user, principal.issued_at)

    def _decide(
        self, request: RequestHead, classified: ClassifiedHeaders, peer: str, listen_port: int | None
    ) -> Decision:
        noted = classified.noted
        host, cookie = noted.get(b"host", b""), noted.get(b"cookie", b"")
        principal = self._principals.get((host, cookie))
        if principal is None or not self.still_holds(principal):
            check_host(noted)
            found = self._find(request, classified, host, listen_port)
            if isinstance(found, LocalResponse):
                return found
            route = found
            principal = self._look_up(route, host, cookie)
        else:
            route = principal.route
        if route.listen_port != listen_port and (listen_port is not None or self.site.is_by_port):
            return unknown(is_ours=False)
        path, _, query = request.target.partition(b"?")
        if path.startswith(b"/.gp/") and path in RESERVED:
            until = None if principal is None else principal.expires_at
            return ReservedRequest(path, query, request.method, cookie, route.label, listen_port, until)
        if principal is None:
            return self._turn_away(request, classified, route, cookie, listen_port)
        refusal = self._cross_site(request, classified, host, route)
        if self.site.is_by_port and b"service-worker" in noted:
            refusal = "it would stay in the browser, where another app may have this port tomorrow"
        if refusal:
            return responses.text(403, f"Refused: {refusal}", closes=has_body(classified))
        if not principal.is_reachable:
            return responses.text(502, "This app is not where apps may be.", closes=has_body(classified))
        return self._forward(request, classified, principal, peer)

    def _find(
        self, request: RequestHead, classified: ClassifiedHeaders, host: bytes, listen_port: int | None
    ) -> Route | LocalResponse:
        """Return the route that a host leads to, or what to answer where there is none."""
        if self.site.is_by_port:
            return self._find_at(host, listen_port)
        if listen_port is not None and self.site.is_of_ports(host):
            return self._to_own_host(request, classified, listen_port)
        label = self.site.label_of(host)
        route = self.table.get(label) if label else None
        launch_url = self.site.launch_url(label) if label else ""
        return route or unknown(is_ours=self.site.is_of_apps(host), launch_url=launch_url)

    def _find_at(self, host: bytes, listen_port: int | None) -> Route | LocalResponse:
        """Return the route that has the port which the request came to; only this port's own host may be named."""
        if listen_port is None or not self.site.is_at_port(host, listen_port):
            return unknown(is_ours=False)
        return self.table.at_port(listen_port) or unknown(is_ours=True, launch_url=f"{self.site.platform_url}/")

    def _to_own_host(self, request: RequestHead, classified: ClassifiedHeaders, listen_port: int) -> LocalResponse:
        """Lead from the name that all ports share, and its cookies with them, to the app's own; the port stays."""
        route = self.table.at_port(listen_port)
        target = request.target.decode("latin-1")
        if route is None or request.method not in (b"GET", b"HEAD") or b"upgrade" in classified.noted:
            return unknown(is_ours=False)
        return responses.redirect(f"{self.site.origin(route.label, listen_port)}{target}")

    def _look_up(self, route: Route, host: bytes, cookie: bytes) -> Principal | None:
        """Return the visitor with this Cookie header, remembered; None if they must log in first."""
        seen = strip_platform_cookies(cookie) if cookie else b""
        values = cookie_values(cookie, self.site.cookie(route.listen_port).encode())
        grant = next(filter(None, (self._grant(value, route) for value in values)), None)
        principal = None
        if grant or route.is_public:
            who = (grant.login, grant.user, grant.issued_at, grant.expires_at) if grant else ANONYMOUS
            principal = Principal(route, *who, self._is_inside(route), self._common_headers(route, host, seen))
            if len(cookie) <= LONGEST_REMEMBERED:
                self._remember(principal, host, cookie)
        return principal

    def _remember(self, principal: Principal, host: bytes, cookie: bytes) -> None:
        while len(self._principals) >= REMEMBERED:
            del self._principals[next(iter(self._principals))]
        self._principals[host, cookie] = principal

    def _common_headers(self, route: Route, host: bytes, cookie: bytes) -> list[Header]:
        """Return the headers that all requests of a visitor bring; `cookie` is what the app may see of it."""
        headers = [(b"Host", host)]
        if cookie:
            headers.append((b"Cookie", cookie))
        if route.token:
            headers.append((b"Authorization", b"token " + route.token.encode()))
        return [*headers, (b"X-Forwarded-Proto", self._scheme), (b"X-Forwarded-Host", host)]

    def _grant(self, value: bytes, route: Route) -> Grant | None:
        """Return what a cookie's value grants at this route now."""
        try:
            grant = Grant.from_cookie(self._keys, value.decode("latin-1"))
        except InvalidSignatureError:
            return None
        is_good = (
            grant.label == route.label
            and grant.epoch == route.epoch
            and grant.expires_at > self._now()
            and not self.table.is_void(grant.login, grant.user, grant.issued_at)
        )
        return grant if is_good else None

    def _turn_away(
        self, request: RequestHead, classified: ClassifiedHeaders, route: Route, cookie: bytes, listen_port: int | None
    ) -> LocalResponse:
        """Return the way to the log-in for somebody who looks at a page, and a plain refusal for a program."""
        noted = classified.noted
        mode = noted.get(b"sec-fetch-mode")
        accepts_html = b"text/html" in noted.get(b"accept", b"")
        is_navigation = mode == b"navigate" if mode is not None else accepts_html and b"upgrade" not in noted
        if request.method in (b"GET", b"HEAD") and is_navigation:
            return self._login_flow.begin(route, request.target, cookie, listen_port)
        login = (b"X-GP-Login", f"{self.site.origin(route.label, listen_port)}/".encode())
        return responses.text(401, "Log in to open this app.", login, closes=has_body(classified))

    def _cross_site(self, request: RequestHead, classified: ClassifiedHeaders, host: bytes, route: Route) -> str:
        """Return why a request that another site's page made is refused, "" if it is none.

        The cookie's SameSite does not do it: the apps' origins are of one site, and so are all ports of a host.
        """
        noted = classified.noted
        site = noted.get(b"sec-fetch-site")
        if request.method not in SAFE_METHODS or b"upgrade" in noted:
            origin = noted.get(b"origin")
            if origin is not None and origin.lower() != self._scheme + b"://" + host.lower():
                return "a page of another origin sent it"
            return "a page of another origin sent it" if site not in (None, b"same-origin", b"none") else ""
        if site in (None, b"same-origin", b"none") or route.is_public:
            return ""
        if noted.get(b"sec-fetch-mode") != b"navigate" or noted.get(b"sec-fetch-dest") in EMBEDDED:
            return "a page of another origin asks for it"
        return ""

    def _forward(
        self, request: RequestHead, classified: ClassifiedHeaders, principal: Principal, peer: str
    ) -> ForwardDecision:
        noted, route = classified.noted, principal.route
        headers = principal.headers + classified.kept
        if b"authorization" in noted and not route.token and not noted[b"authorization"].lower().startswith(API_SCHEME):
            headers.append((b"Authorization", noted[b"authorization"]))
        client = self._client(peer, noted)
        headers.append((b"X-Forwarded-For", client.encode()))
        if route.gateway:
            headers.append((b"X-GP-Gateway", self._gateway_tokens.of(route.label)))
        return framed(request, noted, headers, principal, client)

    def _client(self, peer: str, noted: dict[bytes, bytes]) -> str:
        named = noted.get(b"x-forwarded-for") if self._trusted_proxies else None
        if not named or not is_inside(peer, self._trusted_proxies):
            return peer
        return named.rpartition(b",")[2].strip().decode("latin-1")

    def _is_inside(self, route: Route) -> bool:
        """Return whether the route leads to a gateway, or to an address that containers have."""
        return bool(route.gateway) or is_inside(route.address, self._subnets)


def is_inside(address: str, subnets: Sequence[Network]) -> bool:
    """Return whether an IP address is in one of the subnets; a name never is."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in subnet for subnet in subnets)


def check_host(noted: dict[bytes, bytes]) -> None:
    """Raise Malformed unless there is a Host header that names a host."""
    if not HOST.fullmatch(noted.get(b"host", b"").lower()):
        raise MalformedRequestError("one Host header is needed")


def check_framing(request: RequestHead, noted: dict[bytes, bytes]) -> None:
    """Raise Malformed for a head that can be read in two ways, its Host apart."""
    if not request.target.startswith(b"/"):
        raise MalformedRequestError("the request target must be a path")
    if b"content-length" in noted and not LENGTH.fullmatch(noted[b"content-length"]):
        raise MalformedRequestError("Content-Length is not a number")
    if b"transfer-encoding" in noted:
        if b"content-length" in noted or request.is_http_10:
            raise MalformedRequestError("the length of the body is ambiguous")
        if noted[b"transfer-encoding"].lower() != b"chunked":
            raise MalformedRequestError("this Transfer-Encoding is not known")
    if b"upgrade" in noted:
        _check_upgrade(request, noted)
    if b"expect" in noted and noted[b"expect"].lower() != CONTINUE:
        raise MalformedRequestError("this Expect is not known")


def framed(
    request: RequestHead, noted: dict[bytes, bytes], headers: list[Header], principal: Principal, client: str
) -> ForwardDecision:
    """Return the request with these headers and those that say how it goes over one hop."""
    is_websocket = b"upgrade" in noted and is_switch(noted)
    is_chunked = b"transfer-encoding" in noted
    length = int(noted[b"content-length"]) if b"content-length" in noted else 0
    if is_websocket:
        headers += UPGRADE_HEADERS
    elif is_chunked:
        headers.append((b"Transfer-Encoding", b"chunked"))
    elif b"content-length" in noted:
        headers.append((b"Content-Length", noted[b"content-length"]))
    waits = b"expect" in noted and not request.is_http_10
    size = None if is_chunked else length
    method, target, is_old = request.method, request.target, request.is_http_10
    return ForwardDecision(principal, method, target, headers, size, is_websocket, waits, is_old, client)


def is_switch(noted: dict[bytes, bytes]) -> bool:
    """Return whether the Connection header asks for the upgrade that the Upgrade header names."""
    return b"upgrade" in {token.strip().lower() for token in noted.get(b"connection", b"").split(b",")}


def has_body(classified: ClassifiedHeaders) -> bool:
    """Return whether a body follows, or bytes of another protocol may."""
    noted = classified.noted
    return noted.get(b"content-length", b"0").strip(b"0") != b"" or b"transfer-encoding" in noted or b"upgrade" in noted


def unknown(*, is_ours: bool, launch_url: str = "") -> LocalResponse:
    """Return the answer for a host that has no app, or that is none of the apps' at all.

    `launch_url` is where its owner opens it again; whether there was such an app is not told here.
    """
    if not is_ours:
        return responses.text(421, "This address serves the apps of sessions only.", closes=True)
    if not launch_url:
        return responses.page(404, PageContent(title="No such app", text="This is no address of an app."), closes=True)
    return gone(launch_url)


def gone(launch_url: str) -> LocalResponse:
    """Return the answer for an app that is not there, with a link to where its owner opens it again.

    It is 410 and not 404, by which JupyterLab would understand that its folder is missing, and ask for it hundreds of
    times a second.
    """
    words = PageContent(
        title="This app is gone",
        text="It was closed, or its session has ended.",
        link=(launch_url, "Look in its session"),
    )
    return responses.page(410, words, closes=True)


def _check_upgrade(request: RequestHead, noted: dict[bytes, bytes]) -> None:
    if noted[b"upgrade"].lower() != b"websocket":
        raise MalformedRequestError("only websockets are an upgrade here")
    if is_switch(noted) and (
        request.is_http_10
        or request.method != b"GET"
        or b"transfer-encoding" in noted
        or noted.get(b"content-length", b"0").strip(b"0")
    ):
        raise MalformedRequestError("a websocket begins with a GET of HTTP/1.1 without a body")
