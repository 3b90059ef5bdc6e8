"""Authorization of requests for apps: what is forwarded, and what is answered here.

Decisions need no I/O: they depend on the request, the routes, the keys and the time. Only the end of a login asks the
`ControlPlane`.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from proxy.authorization.control_plane import ControlPlane
from proxy.authorization.gateway_tokens import IssuedTokens
from proxy.authorization.login_flow import RESERVED_PATHS, LoginFlow, ReservedRequest
from proxy.authorization.missing_apps import UnknownApp, no_such_app
from proxy.authorization.signing import Grant, InvalidSignatureError, Keys
from proxy.authorization.unready_apps import explanation, unreachable, unready
from proxy.http import responses
from proxy.http.headers import (
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
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable
from proxy.site import Site

Network = IPv4Network | IPv6Network
# CONNECT would tunnel to other addresses, TRACE would show a page the headers that are added here.
REFUSED_METHODS: Final = frozenset((b"CONNECT", b"TRACE"))
SAFE_METHODS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
ALLOW: Final = (b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
EMBEDDED_DESTINATIONS: Final = frozenset((b"iframe", b"frame", b"embed", b"object", b"fencedframe"))
HOST: Final = re.compile(rb"[a-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?")
LENGTH: Final = re.compile(rb"[0-9]{1,18}")
ANONYMOUS: Final = ("", 0, 0.0, float("inf"))  # login, user, issued_at, expires_at
MAX_CACHED_PRINCIPALS: Final = 10_000  # above which the oldest are evicted
MAX_CACHED_COOKIE_BYTES: Final = 4096  # a longer Cookie header is verified each time
API_SCHEME: Final = b"token "  # of the platform's own API; such a header is not meant for an app
CONTINUE: Final = b"100-continue"


@dataclass(slots=True, eq=False)
class Principal:
    """A user, or anybody, at one endpoint. The anonymous principal has the login "" and the user 0."""

    route: Route
    login: str  # digest of the login session or share link
    user: int  # id
    issued_at: float  # Unix seconds
    expires_at: float  # Unix seconds, infinite for the anonymous
    is_reachable: bool  # the container's address is one that may be connected to
    headers: list[Header]  # added to all requests of this principal

    @property
    def is_owner(self) -> bool:
        """Whether it is the owner of the endpoint's session."""
        return self.user != 0 and self.user == self.route.owner


@dataclass(slots=True, eq=False)
class ForwardDecision:
    """Forward the request, written anew."""

    principal: Principal
    method: bytes
    target: bytes
    headers: list[Header]
    length: int | None  # of the body in bytes; None: chunked
    is_websocket: bool
    expects_continue: bool
    is_http_10: bool
    client: str  # IP address

    def to_bytes(self) -> bytes:
        """Return the request line and header section for the app, with the empty line."""
        version = b" HTTP/1.0\r\n" if self.is_http_10 else b" HTTP/1.1\r\n"
        lines = [name + b": " + value for name, value in self.headers]
        return self.method + b" " + self.target + version + b"\r\n".join(lines) + b"\r\n\r\n"


Deferred = ReservedRequest | UnknownApp  # answered by `serve`, which may wait
Decision = ForwardDecision | LocalResponse | Deferred


class BrowserAuthorizer:
    """Decides about the requests of browsers."""

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
        """Containers are reached inside `subnets` only; the `X-Forwarded-For` of `trusted_proxies` is believed."""
        self.site = site
        self.table = table
        self._keys = keys
        self._subnets = subnets
        self._trusted_proxies = trusted_proxies
        self._now = now
        self._login_flow = LoginFlow(site, table, keys, control_plane, now)
        self._principals: dict[tuple[bytes, bytes], Principal] = {}
        self._gateway_tokens = IssuedTokens()
        self._scheme = site.scheme.encode()

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request from the IP address `peer`; `listen_port` is set at the port of one app."""
        if request.method in REFUSED_METHODS:
            return responses.text(405, "Apps do not get such requests.", ALLOW, closes=True)
        try:
            classified = classify(request.headers)
            check_framing(request, classified.known)
            return self._decide(request, classified, peer, listen_port)
        except MalformedRequestError as error:
            return responses.text(400, f"Bad request: {error}", closes=True)

    async def serve(self, deferred: Deferred) -> LocalResponse:
        """Return the response at a reserved path, or for an app that this process does not know yet."""
        if isinstance(deferred, UnknownApp):
            return await deferred.response(self.table)
        return await self._login_flow.serve(deferred)

    def unreachable(self, request: RequestHead, principal: Principal) -> LocalResponse:
        """Return the response where the app's port refuses connections."""
        route, is_page = self.table.get(principal.route.label), is_navigation(request, classify(request.headers).known)
        return unreachable(route, is_owner=principal.is_owner, is_page=is_page)

    def response_headers(self, principal: Principal, headers: list[Header]) -> list[Header]:
        """Return the headers of an app's response for the browser, without framing."""
        filtered = filter_response_headers(headers, is_public=principal.route.is_public)
        return without_caching(filtered) if self.site.is_by_port else filtered

    def is_current(self, principal: Principal) -> bool:
        """Return whether a principal found earlier still has access."""
        route = principal.route
        if self.table.get(route.label) is not route or principal.expires_at <= self._now():
            return False
        return not principal.login or not self.table.is_void(principal.login, principal.user, principal.issued_at)

    def _decide(
        self, request: RequestHead, classified: ClassifiedHeaders, peer: str, listen_port: int | None
    ) -> Decision:
        known = classified.known
        host, cookie = known.get(b"host", b""), known.get(b"cookie", b"")
        principal = self._principals.get((host, cookie))
        if principal is None or not self.is_current(principal):
            check_host(known)
            found = self._find(request, classified, host, listen_port)
            if not isinstance(found, Route):
                return found
            route = found
            principal = self._look_up(route, host, cookie)
        else:
            route = principal.route
        if route.listen_port != listen_port and (listen_port is not None or self.site.is_by_port):
            return no_such_app(is_app_host=False)
        path, _, query = request.target.partition(b"?")
        is_reserved = path in RESERVED_PATHS
        if principal is None and not is_reserved:
            return self._log_in(request, classified, route, cookie, listen_port)
        refusal = self._cross_site(request, classified, host, route)
        if self.site.is_by_port and b"service-worker" in known:
            refusal = "it would stay in the browser, where another app may have this port tomorrow"
        if refusal:
            return responses.text(403, f"Refused: {refusal}", closes=has_body(classified))
        if principal is None or is_reserved:
            until = None if principal is None else principal.expires_at
            shown = explanation(route.condition, is_owner=principal is not None and principal.is_owner)
            return ReservedRequest(path, query, request.method, cookie, route.label, listen_port, until, shown)
        if not (route.is_ready and principal.is_reachable):
            return _cannot_forward(request, classified, principal)
        return self._forward(request, classified, principal, peer)

    def _find(
        self, request: RequestHead, classified: ClassifiedHeaders, host: bytes, listen_port: int | None
    ) -> Route | LocalResponse | UnknownApp:
        """Return the route of a host, or what to do if there is none."""
        if self.site.is_by_port:
            return self._find_at(host, listen_port)
        if listen_port is not None and self.site.is_of_ports(host):
            return self._to_own_host(request, classified, listen_port)
        label = self.site.label_of(host)
        route = self.table.get(label) if label else None
        launch_url = self.site.launch_url(label) if label else ""
        if label and not route and self.table.has_source and is_navigation(request, classified.known):
            return UnknownApp(label, request.target, launch_url)
        return route or no_such_app(is_app_host=self.site.is_of_apps(host), launch_url=launch_url)

    def _find_at(self, host: bytes, listen_port: int | None) -> Route | LocalResponse:
        """Return the route of the port that the request came to; its Host must name that port."""
        if listen_port is None or not self.site.is_at_port(host, listen_port):
            return no_such_app(is_app_host=False)
        return self.table.at_port(listen_port) or no_such_app(is_app_host=True, launch_url=f"{self.site.platform_url}/")

    def _to_own_host(self, request: RequestHead, classified: ClassifiedHeaders, listen_port: int) -> LocalResponse:
        """Redirect from the name that all ports share, and thus cookies too, to the app's own at the same port."""
        route = self.table.at_port(listen_port)
        target = request.target.decode("latin-1")
        if route is None or request.method not in (b"GET", b"HEAD") or b"upgrade" in classified.known:
            return no_such_app(is_app_host=False)
        return responses.redirect(f"{self.site.origin(route.label, listen_port)}{target}")

    def _look_up(self, route: Route, host: bytes, cookie: bytes) -> Principal | None:
        """Return the principal with this Cookie header, cached; None if a login is needed."""
        app_cookies = strip_platform_cookies(cookie) if cookie else b""
        values = cookie_values(cookie, self.site.cookie(route.listen_port).encode())
        grant = next(filter(None, (self._grant(value, route) for value in values)), None)
        principal = None
        if grant or route.is_public:
            identity = (grant.login, grant.user, grant.issued_at, grant.expires_at) if grant else ANONYMOUS
            principal = Principal(
                route, *identity, self._is_inside(route), self._common_headers(route, host, app_cookies)
            )
            if len(cookie) <= MAX_CACHED_COOKIE_BYTES:
                self._cache(principal, host, cookie)
        return principal

    def _cache(self, principal: Principal, host: bytes, cookie: bytes) -> None:
        while len(self._principals) >= MAX_CACHED_PRINCIPALS:
            del self._principals[next(iter(self._principals))]
        self._principals[host, cookie] = principal

    def _common_headers(self, route: Route, host: bytes, cookie: bytes) -> list[Header]:
        """Return the headers added to all requests of a principal; `cookie` has the app's own cookies only."""
        headers = [(b"Host", host)]
        if cookie:
            headers.append((b"Cookie", cookie))
        if route.token:
            headers.append((b"Authorization", b"token " + route.token.encode()))
        return [*headers, (b"X-Forwarded-Proto", self._scheme), (b"X-Forwarded-Host", host)]

    def _grant(self, value: bytes, route: Route) -> Grant | None:
        """Return the grant in a cookie's value, None unless it is valid for this route now."""
        try:
            grant = Grant.from_cookie(self._keys, value.decode("latin-1"))
        except InvalidSignatureError:
            return None
        is_valid = (
            grant.label == route.label
            and grant.epoch == route.epoch
            and grant.expires_at > self._now()
            and not self.table.is_void(grant.login, grant.user, grant.issued_at)
        )
        return grant if is_valid else None

    def _log_in(
        self, request: RequestHead, classified: ClassifiedHeaders, route: Route, cookie: bytes, listen_port: int | None
    ) -> LocalResponse:
        """Return the redirect to the login for navigations, and 401 for other requests."""
        if is_navigation(request, classified.known):
            return self._login_flow.start(route, request.target, cookie, listen_port)
        login = (b"X-GP-Login", f"{self.site.origin(route.label, listen_port)}/".encode())
        return responses.text(401, "Log in to open this app.", login, closes=has_body(classified))

    def _cross_site(self, request: RequestHead, classified: ClassifiedHeaders, host: bytes, route: Route) -> str:
        """Return why a request made by a page of another origin is refused, "" if it is not.

        SameSite cookies do not help: the apps' origins are same-site, and so are all ports of a host.
        """
        known = classified.known
        site = known.get(b"sec-fetch-site")
        if request.method not in SAFE_METHODS or b"upgrade" in known:
            origin = known.get(b"origin")
            if origin is not None and origin.lower() != self._scheme + b"://" + host.lower():
                return "a page of another origin sent it"
            return "a page of another origin sent it" if site not in (None, b"same-origin", b"none") else ""
        if site in (None, b"same-origin", b"none") or route.is_public:
            return ""
        if known.get(b"sec-fetch-mode") != b"navigate" or known.get(b"sec-fetch-dest") in EMBEDDED_DESTINATIONS:
            return "a page of another origin asks for it"
        return ""

    def _forward(
        self, request: RequestHead, classified: ClassifiedHeaders, principal: Principal, peer: str
    ) -> ForwardDecision:
        known, route = classified.known, principal.route
        headers = principal.headers + classified.forwarded
        if b"authorization" in known and not route.token and not known[b"authorization"].lower().startswith(API_SCHEME):
            headers.append((b"Authorization", known[b"authorization"]))
        client = self._client(peer, known)
        headers.append((b"X-Forwarded-For", client.encode()))
        if route.gateway:
            headers.append((b"X-GP-Gateway", self._gateway_tokens.issue(route.label, route.gateway_key)))
        return to_forward(request, known, headers, principal, client)

    def _client(self, peer: str, known: dict[bytes, bytes]) -> str:
        named = known.get(b"x-forwarded-for") if self._trusted_proxies else None
        if not named or not is_inside(peer, self._trusted_proxies):
            return peer
        return named.rpartition(b",")[2].strip().decode("latin-1")

    def _is_inside(self, route: Route) -> bool:
        """Return whether the route leads to a gateway, or to an address that containers may have."""
        return bool(route.gateway) or is_inside(route.address, self._subnets)


def _cannot_forward(request: RequestHead, classified: ClassifiedHeaders, principal: Principal) -> LocalResponse:
    """Return the response where the app is not READY, or has an address that may not be connected to."""
    route, closes = principal.route, has_body(classified)
    if route.is_ready:
        return responses.text(502, "This app is not where apps may be.", closes=closes)
    is_page = is_navigation(request, classified.known)
    return unready(route.condition, is_owner=principal.is_owner, is_page=is_page, closes=closes)


def is_inside(address: str, subnets: Sequence[Network]) -> bool:
    """Return whether an IP address is in one of the subnets; False for what is none."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in subnet for subnet in subnets)


def check_host(known: dict[bytes, bytes]) -> None:
    """Raise MalformedRequestError unless there is a valid Host header (RFC 9112, 3.2)."""
    if not HOST.fullmatch(known.get(b"host", b"").lower()):
        raise MalformedRequestError("one Host header is needed")


def check_framing(request: RequestHead, known: dict[bytes, bytes]) -> None:
    """Raise MalformedRequestError for a request whose extent is ambiguous (RFC 9112, 6.3)."""
    if not request.target.startswith(b"/"):
        raise MalformedRequestError("the request target must be a path")
    if b"content-length" in known and not LENGTH.fullmatch(known[b"content-length"]):
        raise MalformedRequestError("Content-Length is not a number")
    if b"transfer-encoding" in known:
        if b"content-length" in known or request.is_http_10:
            raise MalformedRequestError("the length of the body is ambiguous")
        if known[b"transfer-encoding"].lower() != b"chunked":
            raise MalformedRequestError("this Transfer-Encoding is not known")
    if b"upgrade" in known:
        _check_upgrade(request, known)
    if b"expect" in known and known[b"expect"].lower() != CONTINUE:
        raise MalformedRequestError("this Expect is not known")


def to_forward(
    request: RequestHead, known: dict[bytes, bytes], headers: list[Header], principal: Principal, client: str
) -> ForwardDecision:
    """Return the request with these headers, and those that concern one connection (RFC 9110, 7.6.1)."""
    is_websocket = b"upgrade" in known and is_upgrade(known)
    is_chunked = b"transfer-encoding" in known
    length = int(known[b"content-length"]) if b"content-length" in known else 0
    if is_websocket:
        headers += UPGRADE_HEADERS
    elif is_chunked:
        headers.append((b"Transfer-Encoding", b"chunked"))
    elif b"content-length" in known:
        headers.append((b"Content-Length", known[b"content-length"]))
    expects_continue = b"expect" in known and not request.is_http_10
    size = None if is_chunked else length
    method, target, is_old = request.method, request.target, request.is_http_10
    return ForwardDecision(principal, method, target, headers, size, is_websocket, expects_continue, is_old, client)


def is_upgrade(known: dict[bytes, bytes]) -> bool:
    """Return whether the Connection header asks for the upgrade that the Upgrade header names."""
    return b"upgrade" in {token.strip().lower() for token in known.get(b"connection", b"").split(b",")}


def has_body(classified: ClassifiedHeaders) -> bool:
    """Return whether a body, or another protocol, may follow the header section."""
    known = classified.known
    return known.get(b"content-length", b"0").strip(b"0") != b"" or b"transfer-encoding" in known or b"upgrade" in known


def is_navigation(request: RequestHead, known: dict[bytes, bytes]) -> bool:
    """Return whether a browser asks for a page to show."""
    mode = known.get(b"sec-fetch-mode")
    accepts_html = b"text/html" in known.get(b"accept", b"")
    is_page = mode == b"navigate" if mode is not None else accepts_html and b"upgrade" not in known
    return request.method in (b"GET", b"HEAD") and is_page


def _check_upgrade(request: RequestHead, known: dict[bytes, bytes]) -> None:
    if known[b"upgrade"].lower() != b"websocket":
        raise MalformedRequestError("only websockets are an upgrade here")
    if is_upgrade(known) and (
        request.is_http_10
        or request.method != b"GET"
        or b"transfer-encoding" in known
        or known.get(b"content-length", b"0").strip(b"0")
    ):
        raise MalformedRequestError("a websocket begins with a GET of HTTP/1.1 without a body")
