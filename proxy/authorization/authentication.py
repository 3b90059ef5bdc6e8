"""Who sends a request to an address of the apps' domain, an app's or a service's alike, and whether a page may."""

from collections.abc import Callable, Sequence
from typing import Final

from proxy.authorization.login_flow import LoginFlow
from proxy.authorization.networks import Network, is_inside
from proxy.authorization.request_checks import has_body, is_navigation
from proxy.authorization.signing import Grant, InvalidSignatureError, Keys
from proxy.http import responses
from proxy.http.headers import ClassifiedHeaders, Header, RequestHead, cookie_values
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable, Service
from proxy.site import Site

SAFE_METHODS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
API_SCHEME: Final = b"token "  # of the platform's own API; such a header is not meant for an app
BORROWED_PORT: Final = "it would stay in the browser, where another app may have this port tomorrow"
EMBEDDED_DESTINATIONS: Final = frozenset((b"iframe", b"frame", b"embed", b"object", b"fencedframe"))


class ClientAuthentication:
    """Finds the grants in cookies, sends browsers to the login, and refuses the pages of other origins."""

    def __init__(
        self,
        *,
        site: Site,
        table: RouteTable,
        keys: Keys,
        login_flow: LoginFlow,
        trusted_proxies: Sequence[Network],
        now: Callable[[], float],
    ) -> None:
        self._site = site
        self._table = table
        self._keys = keys
        self._login_flow = login_flow
        self._trusted_proxies = trusted_proxies
        self._now = now
        self._scheme = site.scheme.encode()

    def grant(self, cookie: bytes, route: Route | Service, listen_port: int | None) -> Grant | None:
        """Return the first grant in a Cookie header that is valid for this endpoint or service now."""
        values = cookie_values(cookie, self._site.cookie(listen_port).encode())
        return next(filter(None, (self._valid_grant(value, route) for value in values)), None)

    def common_headers(self, host: bytes, cookie: bytes, token: str = "") -> list[Header]:
        """Return the headers added to all requests of a principal; `cookie` has the app's own cookies only."""
        headers = [(b"Host", host)]
        if cookie:
            headers.append((b"Cookie", cookie))
        if token:
            headers.append((b"Authorization", b"token " + token.encode()))
        return [*headers, (b"X-Forwarded-Proto", self._scheme), (b"X-Forwarded-Host", host)]

    def log_in(
        self,
        request: RequestHead,
        classified: ClassifiedHeaders,
        route: Route | Service,
        cookie: bytes,
        listen_port: int | None,
        *challenges: Header,
        own_host: str = "",
        words: str = "Log in to open this app.",
    ) -> LocalResponse:
        """Return the redirect to the login for navigations, and 401 for other requests, with these headers and words.

        `own_host` is that of a service's own names to which the request came.
        """
        if is_navigation(request, classified.known):
            return self._login_flow.start(route, request.target, cookie, listen_port, own_host)
        site = self._site
        origin = site.origin_of(own_host) if own_host else site.origin(route.label, listen_port)
        login = (b"X-GP-Login", f"{origin}/".encode())
        return responses.text(401, words, *challenges, login, closes=has_body(classified))

    def cross_site(self, request: RequestHead, known: dict[bytes, bytes], host: bytes, *, is_public: bool) -> str:
        """Return why a request made by a page of another origin is refused, "" if it is not.

        SameSite cookies do not help: the apps' origins are same-site, and so are all ports of a host.
        """
        site = known.get(b"sec-fetch-site")
        if request.method not in SAFE_METHODS or b"upgrade" in known:
            origin = known.get(b"origin")
            if origin is not None and origin.lower() != self._scheme + b"://" + host.lower():
                return "a page of another origin sent it"
            return "a page of another origin sent it" if site not in (None, b"same-origin", b"none") else ""
        if site in (None, b"same-origin", b"none") or is_public:
            return ""
        if known.get(b"sec-fetch-mode") != b"navigate" or known.get(b"sec-fetch-dest") in EMBEDDED_DESTINATIONS:
            return "a page of another origin asks for it"
        return ""

    def client(self, peer: str, known: dict[bytes, bytes]) -> str:
        """Return the IP address that a request comes from: `peer`, or what a trusted proxy there says."""
        named = known.get(b"x-forwarded-for") if self._trusted_proxies else None
        if not named or not is_inside(peer, self._trusted_proxies):
            return peer
        return named.rpartition(b",")[2].strip().decode("latin-1")

    def _valid_grant(self, value: bytes, route: Route | Service) -> Grant | None:
        """Return the grant in a cookie's value, None unless it is valid for this route now."""
        try:
            grant = Grant.from_cookie(self._keys, value.decode("latin-1"))
        except InvalidSignatureError:
            return None
        is_valid = (
            grant.label == route.label
            and grant.epoch == route.epoch
            and grant.expires_at > self._now()
            and not self._table.revocations.is_void(grant.login, grant.user, grant.issued_at)
        )
        return grant if is_valid else None
