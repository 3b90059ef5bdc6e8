"""Authorization at the address of a service: by one of its tokens, by a browser's cookie, or for everybody.

A token is looked up by its digest, so what a stranger sends costs one SHA-256, and how long that takes says nothing of
the tokens there are. What had access is remembered as it was sent, as cookies are, in a table that Python hashes with
a key of each process.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from proxy.authorization import cors
from proxy.authorization.authentication import API_SCHEME, BORROWED_PORT, ClientAuthentication
from proxy.authorization.decisions import ANONYMOUS, Decision, ForwardDecision, ServicePrincipal, to_forward
from proxy.authorization.login_flow import RESERVED_PATHS, ReservedRequest
from proxy.authorization.missing_apps import no_such_app
from proxy.authorization.request_checks import has_body, is_navigation
from proxy.authorization.unready_apps import condition_of, explanation
from proxy.http import responses
from proxy.http.headers import (
    ClassifiedHeaders,
    Header,
    MalformedRequestError,
    RequestHead,
    cookie_values,
    strip_platform_cookies,
)
from proxy.http.responses import LocalResponse
from proxy.routes import RouteTable, Service, ServiceToken
from proxy.site import Site, name_of

SECRET_PREFIX: Final = b"gpd_"  # of the tokens' secrets, which no app ever gets
BEARER: Final = b"bearer"
API_KEY: Final = b"x-api-key"
STICKY_BY_COOKIE: Final = "cookie"
CHALLENGE: Final = (b"WWW-Authenticate", b"Bearer")
INVALID_TOKEN: Final = (b"WWW-Authenticate", b'Bearer error="invalid_token"')
HOW_TO_OPEN: Final = "Send a token of this deployment, as in Authorization: Bearer gpd_..."
MAX_CACHED_HOSTS: Final = 4096
MAX_CACHED_PRINCIPALS: Final = 10_000  # above which the oldest are evicted
MAX_CACHED_COOKIE_BYTES: Final = 4096  # a longer Cookie header is verified each time


class ServiceAuthorizer:
    """Decides about requests for services, whatever replica serves them."""

    def __init__(
        self, site: Site, table: RouteTable, authentication: ClientAuthentication, now: Callable[[], float] = time.time
    ) -> None:
        self._site = site
        self._scheme = site.scheme.encode()
        self._table = table
        self._authentication = authentication
        self._now = now
        self._hosts: dict[bytes, Service] = {}  # by Host header, as clients write it
        self._principals: dict[tuple[bytes, bytes, bytes], ServicePrincipal] = {}
        self._tokens: dict[str, tuple[Service, dict[str, ServiceToken]]] = {}  # by label, then by digest

    def at(self, host: bytes) -> Service | None:
        """Return the service at this Host header's value, if it is one that was remembered and still stands."""
        service = self._hosts.get(host)
        return service if service and self._table.get_service(service.label) is service else None

    def remember(self, host: bytes, service: Service) -> None:
        """Have `at` find the service, which takes less time than to parse the host."""
        if len(self._hosts) >= MAX_CACHED_HOSTS:
            self._hosts.clear()
        self._hosts[host] = service

    def decide(
        self,
        request: RequestHead,
        classified: ClassifiedHeaders,
        service: Service,
        peer: str,
        listen_port: int | None = None,
    ) -> Decision:
        """Return what to do with a request. Raises MalformedRequestError for one with two tokens."""
        own_host = _own_host(service, classified.known[b"host"])
        if listen_port != (None if own_host else service.listen_port):
            return no_such_app(is_app_host=False)
        origin = cors.foreign_origin(classified.known, self._scheme) if b"origin" in classified.known else b""
        if origin and cors.is_preflight(request, classified.known):
            return cors.preflight(classified, service, origin, self._site)
        headers, secret, sticky_key = _read(classified, service.sticky)
        shown: tuple[Header, ...] = ()
        if origin or service.allowed_origins:
            shown = cors.response_headers(service, origin, self._site, has_token=bool(secret))
        decision = self._decide(request, classified, service, secret, origin, own_host, listen_port)
        if isinstance(decision, ServicePrincipal):
            forward = self._forward(request, classified.known, decision, decision.headers + headers, peer)
            forward.sticky_key, forward.cors = sticky_key, shown
            return forward
        return decision.with_headers(shown) if shown and isinstance(decision, LocalResponse) else decision

    def _decide(
        self,
        request: RequestHead,
        classified: ClassifiedHeaders,
        service: Service,
        secret: bytes,
        origin: bytes,
        own_host: str,
        listen_port: int | None,
    ) -> ServicePrincipal | LocalResponse | ReservedRequest:
        """Return who sends a request that is to be forwarded, or the response; `origin` is that of a foreign page.

        A cookie never opens a service to a page of another origin.
        """
        known = classified.known
        host, cookie = known[b"host"], b"" if origin else known.get(b"cookie", b"")
        principal = self._principals.get((host, cookie, secret))
        if principal is None or not self._is_current(principal, service):
            principal = self._look_up(service, host, cookie, secret, listen_port)
        if principal is None and secret:
            text = "This token is not valid for this deployment."
            return responses.text(401, text, INVALID_TOKEN, closes=has_body(classified))
        path, _, query = request.target.partition(b"?")
        is_reserved = path in RESERVED_PATHS
        refusal = ""
        if not secret and (is_reserved or not (origin and cors.is_allowed(origin, service))):
            refusal = self._authentication.cross_site(request, known, host, is_public=service.is_public)
        if listen_port is not None and b"service-worker" in known:
            refusal = BORROWED_PORT
        if principal is None and not is_reserved and not (origin and refusal):
            challenges = () if is_navigation(request, known) else (CHALLENGE,)
            log_in = self._authentication.log_in
            return log_in(
                request, classified, service, cookie, listen_port, *challenges, own_host=own_host, words=HOW_TO_OPEN
            )
        if refusal:
            return responses.text(403, f"Refused: {refusal}", closes=has_body(classified))
        if principal is None or is_reserved:
            until = None if principal is None else principal.expires_at
            condition = condition_of(service, self._table)
            shown = explanation(condition, is_owner=principal is not None and principal.is_owner)
            return ReservedRequest(path, query, request.method, cookie, service.label, listen_port, until, shown)
        return principal

    def _forward(
        self,
        request: RequestHead,
        known: dict[bytes, bytes],
        principal: ServicePrincipal,
        headers: list[Header],
        peer: str,
    ) -> ForwardDecision:
        client = self._authentication.client(peer, known)
        headers.append((b"X-Forwarded-For", client.encode()))
        return to_forward(request, known, headers, principal, client)

    def _is_current(self, principal: ServicePrincipal, service: Service) -> bool:
        """Return whether a principal found earlier still has access."""
        if principal.route is not service or principal.expires_at <= self._now():
            return False
        if not principal.issued_at:  # by a token, or anybody: nothing was issued that could be void
            return True
        return not self._table.revocations.is_void(principal.login, principal.user, principal.issued_at)

    def _look_up(
        self, service: Service, host: bytes, cookie: bytes, secret: bytes, listen_port: int | None
    ) -> ServicePrincipal | None:
        """Return who has this token's secret or, without one, this Cookie header; cached; None without access."""
        token = self._token(service, secret)
        grant = None if secret else self._authentication.grant(cookie, service, listen_port)
        if token:
            identity = (token.login, 0, 0.0, token.expires_at)
        elif grant:
            identity = (grant.login, grant.user, grant.issued_at, grant.expires_at)
        elif service.is_public and not secret:
            identity = ANONYMOUS
        else:
            return None
        headers = self._authentication.common_headers(host, strip_platform_cookies(cookie) if cookie else b"")
        named, replica = None, b""
        if service.sticky == STICKY_BY_COOKIE:
            name = self._site.replica_cookie(listen_port).encode()
            named = name, b"; Path=/; HttpOnly; SameSite=Lax" + (b"; Secure" if self._site.is_secure else b"")
            replica = next(iter(cookie_values(cookie, name)), b"")
        own_host = _own_host(service, host)
        principal = ServicePrincipal(service, *identity, headers, token, named, replica, own_host)
        if len(cookie) <= MAX_CACHED_COOKIE_BYTES:
            while len(self._principals) >= MAX_CACHED_PRINCIPALS:
                del self._principals[next(iter(self._principals))]
            self._principals[host, cookie, secret] = principal
        return principal

    def _token(self, service: Service, secret: bytes) -> ServiceToken | None:
        """Return the service's token with this secret, None unless it is valid now."""
        if not secret:
            return None
        indexed = self._tokens.get(service.label)
        if indexed is None or indexed[0] is not service:
            self._tokens = {
                label: each for label, each in self._tokens.items() if self._table.get_service(label) is each[0]
            }
            indexed = self._tokens[service.label] = (service, {token.digest: token for token in service.tokens})
        token = indexed[1].get(sha256(secret).hexdigest())
        return token if token and token.expires_at > self._now() else None


def _own_host(service: Service, host: bytes) -> str:
    """Return that of the service's own names which a Host header has, "" for its other address."""
    name = name_of(host).decode("latin-1") if service.hosts else ""
    return name if name in service.hosts else ""


def _read(classified: ClassifiedHeaders, sticky: str) -> tuple[list[Header], bytes, bytes]:
    """Return the headers to forward, without tokens, the token's secret, and the value of the sticky header.

    Raises MalformedRequestError if two tokens are sent.
    """
    known, forwarded = classified.known, classified.forwarded
    authorization, api_key = known.get(b"authorization", b""), known.get(API_KEY, b"")
    secret = _bearer(authorization) if authorization else b""
    if authorization and not secret and not authorization.lower().startswith(API_SCHEME):
        forwarded = [*forwarded, (b"Authorization", authorization)]
    if SECRET_PREFIX in api_key and any(each.startswith(SECRET_PREFIX) for each in api_key.split(b", ")):
        if (secret and secret != api_key) or b"," in api_key:  # headers of one name come joined
            raise MalformedRequestError("two tokens")
        secret = api_key
        forwarded = [header for header in forwarded if header[0].lower() != API_KEY]
    if not sticky or sticky == STICKY_BY_COOKIE:
        return forwarded, secret, b""
    name = sticky.encode()
    return forwarded, secret, next((value for key, value in reversed(forwarded) if key.lower() == name), b"")


def _bearer(authorization: bytes) -> bytes:
    """Return the token in an Authorization header's value, empty if it is not one of the services'."""
    scheme, _, secret = authorization.partition(b" ")
    secret = secret.strip()
    return secret if scheme.lower() == BEARER and secret.startswith(SECRET_PREFIX) else b""
