"""Authorization of requests for apps: what is forwarded, and what is answered here.

Decisions need no I/O: they depend on the request, the routes, the keys and the time. Only the end of a login asks the
`ControlPlane`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from proxy.authorization.authentication import API_SCHEME, BORROWED_PORT, ClientAuthentication
from proxy.authorization.control_plane import ControlPlane
from proxy.authorization.decisions import (
    ANONYMOUS,
    AnyPrincipal,
    Decision,
    Deferred,
    ForwardDecision,
    Principal,
    UpstreamFailure,
    to_forward,
)
from proxy.authorization.gateway_tokens import IssuedTokens
from proxy.authorization.login_flow import RESERVED_PATHS, LoginFlow, ReservedRequest
from proxy.authorization.missing_apps import UnknownApp, no_such_app
from proxy.authorization.networks import Network, is_inside
from proxy.authorization.request_checks import check_framing, check_host, has_body, is_navigation
from proxy.authorization.services import ServiceAuthorizer
from proxy.authorization.signing import Keys
from proxy.authorization.unready_apps import explanation, unreachable, unready
from proxy.http import responses
from proxy.http.headers import (
    ClassifiedHeaders,
    Header,
    MalformedRequestError,
    RequestHead,
    classify,
    filter_response_headers,
    strip_platform_cookies,
    without_caching,
)
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable, Service
from proxy.site import Site, name_of

# CONNECT would tunnel to other addresses, TRACE would show a page the headers that are added here.
REFUSED_METHODS: Final = frozenset((b"CONNECT", b"TRACE"))
ALLOW: Final = (b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
MAX_CACHED_PRINCIPALS: Final = 10_000  # above which the oldest are evicted
MAX_CACHED_COOKIE_BYTES: Final = 4096  # a longer Cookie header is verified each time


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
        self._subnets = subnets
        self._now = now
        self._login_flow = LoginFlow(site, table, keys, control_plane, now)
        self._authentication = ClientAuthentication(
            site=site, table=table, keys=keys, login_flow=self._login_flow, trusted_proxies=trusted_proxies, now=now
        )
        self._services = ServiceAuthorizer(site, table, self._authentication, now)
        self._principals: dict[tuple[bytes, bytes], Principal] = {}
        self._gateway_tokens = IssuedTokens()

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request from the IP address `peer`; `listen_port` is set at the port of one app."""
        if request.method in REFUSED_METHODS:
            return responses.text(405, "Apps do not get such requests.", ALLOW, closes=True)
        try:
            classified = classify(request.headers)
            check_framing(request, classified.known)
            if service := self._services.at(classified.known.get(b"host", b"")):
                return self._services.decide(request, classified, service, peer, listen_port)
            return self._decide(request, classified, peer, listen_port)
        except MalformedRequestError as error:
            return responses.text(400, f"Bad request: {error}", closes=True)

    async def serve(self, deferred: Deferred) -> LocalResponse:
        """Return the response at a reserved path, or for an app that this process does not know yet."""
        if isinstance(deferred, UnknownApp):
            return await deferred.response(self.table)
        return await self._login_flow.serve(deferred)

    def unreachable(self, request: RequestHead, principal: AnyPrincipal, *, is_silent: bool) -> LocalResponse:
        """Return the response where the app's port refuses connections, or does not even do that (`is_silent`)."""
        if is_silent:
            return responses.RESPONSE_TIMEOUT
        route, is_page = self.table.get(principal.route.label), is_navigation(request, classify(request.headers).known)
        return unreachable(route, is_owner=principal.is_owner, is_page=is_page)

    def failed(self, failure: UpstreamFailure) -> LocalResponse:
        """Return the response where the app has sent none."""
        return responses.upstream_failed(is_silent=failure is UpstreamFailure.SILENT)

    def response_headers(self, principal: AnyPrincipal, headers: list[Header]) -> list[Header]:
        """Return the headers of an app's response for the browser, without framing."""
        route = principal.route
        filtered = filter_response_headers(
            headers, is_public=route.is_public, has_cors_rules=isinstance(route, Service)
        )
        return without_caching(filtered) if self.site.is_by_port else filtered

    def is_current(self, principal: Principal) -> bool:
        """Return whether a principal found earlier still has access."""
        route = principal.route
        if self.table.get(route.label) is not route or principal.expires_at <= self._now():
            return False
        login, revocations = principal.login, self.table.revocations
        return not login or not revocations.is_void(login, principal.user, principal.issued_at)

    def reaches(self, route: Route) -> bool:
        """Return whether the route leads to a gateway, or to an address that containers may have."""
        return bool(route.gateway) or is_inside(route.address, self._subnets)

    def _decide(
        self, request: RequestHead, classified: ClassifiedHeaders, peer: str, listen_port: int | None
    ) -> Decision:
        known = classified.known
        host, cookie = known.get(b"host", b""), known.get(b"cookie", b"")
        principal = self._principals.get((host, cookie))
        if principal is None or not self.is_current(principal):
            found = self._find(request, classified, host, peer, listen_port)
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
            return self._authentication.log_in(request, classified, route, cookie, listen_port)
        refusal = self._authentication.cross_site(request, known, host, is_public=route.is_public)
        if self.site.is_by_port and b"service-worker" in known:
            refusal = BORROWED_PORT
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
        self, request: RequestHead, classified: ClassifiedHeaders, host: bytes, peer: str, listen_port: int | None
    ) -> Route | Decision:
        """Return the route of a host, or what to do if there is none or if it is a service's."""
        check_host(classified.known)
        if service := self.table.at_host(name_of(host)):
            self._services.remember(host, service)
            return self._services.decide(request, classified, service, peer, listen_port)
        if self.site.is_by_port:
            found = self._find_at(host, listen_port)
            if isinstance(found, Service):
                return self._services.decide(request, classified, found, peer, listen_port)
            return found
        if listen_port is not None and self.site.is_of_ports(host):
            return self._to_own_host(request, classified, listen_port)
        label = self.site.label_of(host)
        route = self.table.find(label) if label else None
        if isinstance(route, Service):
            self._services.remember(host, route)
            return self._services.decide(request, classified, route, peer, listen_port)
        launch_url = self.site.launch_url(label) if label else ""
        if label and not route and self.table.reader and is_navigation(request, classified.known):
            return UnknownApp(label, request.target, launch_url)
        return route or no_such_app(is_app_host=self.site.is_of_apps(host), launch_url=launch_url)

    def _find_at(self, host: bytes, listen_port: int | None) -> Route | Service | LocalResponse:
        """Return the route or service of the port that the request came to; its Host must name that port."""
        if listen_port is None or not self.site.is_at_port(host, listen_port):
            return no_such_app(is_app_host=False)
        return self.table.at_port(listen_port) or no_such_app(is_app_host=True, launch_url=f"{self.site.platform_url}/")

    def _to_own_host(self, request: RequestHead, classified: ClassifiedHeaders, listen_port: int) -> LocalResponse:
        """Redirect from the name that all ports share, and thus cookies too, to the app's own at the same port."""
        route = self.table.at_port(listen_port)
        target = request.target.decode("latin-1")
        if not isinstance(route, Route) or request.method not in (b"GET", b"HEAD") or b"upgrade" in classified.known:
            return no_such_app(is_app_host=False)
        return responses.redirect(f"{self.site.origin(route.label, listen_port)}{target}")

    def _look_up(self, route: Route, host: bytes, cookie: bytes) -> Principal | None:
        """Return the principal with this Cookie header, cached; None if a login is needed."""
        app_cookies = strip_platform_cookies(cookie) if cookie else b""
        grant = self._authentication.grant(cookie, route, route.listen_port)
        principal = None
        if grant or route.is_public:
            identity = (grant.login, grant.user, grant.issued_at, grant.expires_at) if grant else ANONYMOUS
            principal = Principal(
                route,
                *identity,
                self.reaches(route),
                self._authentication.common_headers(host, app_cookies, route.token),
            )
            if len(cookie) <= MAX_CACHED_COOKIE_BYTES:
                self._cache(principal, host, cookie)
        return principal

    def _cache(self, principal: Principal, host: bytes, cookie: bytes) -> None:
        while len(self._principals) >= MAX_CACHED_PRINCIPALS:
            del self._principals[next(iter(self._principals))]
        self._principals[host, cookie] = principal

    def _forward(
        self, request: RequestHead, classified: ClassifiedHeaders, principal: Principal, peer: str
    ) -> ForwardDecision:
        known, route = classified.known, principal.route
        headers = principal.headers + classified.forwarded
        if b"authorization" in known and not route.token and not known[b"authorization"].lower().startswith(API_SCHEME):
            headers.append((b"Authorization", known[b"authorization"]))
        client = self._authentication.client(peer, known)
        headers.append((b"X-Forwarded-For", client.encode()))
        if route.gateway:
            headers.append((b"X-GP-Gateway", self._gateway_tokens.issue(route.label, route.gateway_key)))
        return to_forward(request, known, headers, principal, client)


def _cannot_forward(request: RequestHead, classified: ClassifiedHeaders, principal: Principal) -> LocalResponse:
    """Return the response where the app is not READY, or has an address that may not be connected to."""
    route, closes = principal.route, has_body(classified)
    if route.is_ready:
        return responses.text(502, "This app is not where apps may be.", closes=closes)
    is_page = is_navigation(request, classified.known)
    return unready(route.condition, is_owner=principal.is_owner, is_page=is_page, closes=closes)
