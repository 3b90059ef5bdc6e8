"""What is decided about a request, and who makes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from proxy.authorization.login_flow import ReservedRequest
from proxy.authorization.missing_apps import UnknownApp
from proxy.authorization.request_checks import is_upgrade
from proxy.http.headers import UPGRADE_HEADERS, Header, RequestHead, header_line
from proxy.http.responses import LocalResponse
from proxy.routes import Route, Service, ServiceToken

REPEATABLE_METHODS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
ANONYMOUS: Final = ("", 0, 0.0, float("inf"))  # login, user, issued_at, expires_at


class UpstreamFailure(Enum):
    """How a request came to no response; the values are what a gateway says of it."""

    UNSENT = b"unsent"
    LOST = b"lost"  # it was sent to the app, which has hung up without a byte of a response
    MALFORMED = b"malformed"  # the app has sent what is no HTTP
    SILENT = b"silent"  # the app has not responded in time


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
class ServicePrincipal:
    """A user, or anybody, or a token at one service; which replica serves it is found for each request."""

    route: Service
    login: str  # digest of the login session, or `ServiceToken.login`
    user: int  # id, 0 for a token
    issued_at: float  # Unix seconds
    expires_at: float  # Unix seconds
    headers: list[Header]  # added to all requests of this principal
    token: ServiceToken | None  # None: a browser, or anybody
    replica_cookie: tuple[bytes, bytes] | None  # name and attributes of the cookie that names a replica
    replica: bytes  # opaque id that this cookie has, empty if it is not sent
    host: str = ""  # that of the service's own names by which it comes, "" for its other address

    @property
    def is_owner(self) -> bool:
        """Whether it is the owner of the service."""
        return self.user != 0 and self.user == self.route.owner


AnyPrincipal = Principal | ServicePrincipal


@dataclass(slots=True, eq=False)
class ForwardDecision:
    """Forward the request, written anew."""

    principal: AnyPrincipal
    method: bytes
    target: bytes
    headers: list[Header]
    length: int | None  # of the body in bytes; None: chunked
    is_websocket: bool
    expects_continue: bool
    is_http_10: bool
    client: str  # IP address
    sticky_key: bytes = b""  # value of the header by which a service chooses the replica
    cors: tuple[Header, ...] = ()  # headers of the response, which tell browsers what pages of other origins may read

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent once more after it was sent to an app (RFC 9110, 9.2.2)."""
        return self.length == 0 and self.method in REPEATABLE_METHODS

    def to_bytes(self, added: Sequence[Header] = ()) -> bytes:
        """Return the request line and header section for the app, with these headers too, and the empty line."""
        version = b" HTTP/1.0\r\n" if self.is_http_10 else b" HTTP/1.1\r\n"
        headers = [*self.headers, *added] if added else self.headers
        return self.method + b" " + self.target + version + b"\r\n".join(map(header_line, headers)) + b"\r\n\r\n"


Deferred = ReservedRequest | UnknownApp  # answered by `serve`, which may wait
Decision = ForwardDecision | LocalResponse | Deferred


def to_forward(
    request: RequestHead, known: dict[bytes, bytes], headers: list[Header], principal: AnyPrincipal, client: str
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
