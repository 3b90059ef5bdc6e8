"""Which headers of a request reach an app, and which of an app's response reach the browser.

Header sections are forwarded by being written anew from parsed fields, so that no recipient reads a byte differently.
Names keep their case; a header is `(name, value)`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

Header = tuple[bytes, bytes]
header_line: Final = b": ".join  # of a header; called for each one, so it is no function of ours


class MalformedRequestError(Exception):
    """A request that must not be forwarded; the message says why."""


class _RequestAction(Enum):
    """What is done with a header of a request."""

    FORWARD = "forward"
    DROP = "drop"
    READ = "read"  # and written anew if at all
    READ_AND_FORWARD = "read and forward"
    RELAY = "relay"  # forwarded if a web process sent it, dropped otherwise


class _ResponseAction(Enum):
    """What is done with a header of a response."""

    SEND = "send"
    DROP = "drop"
    SEND_IF_PUBLIC = "send if public"
    CORS = "send if public, unless the platform has rules of its own"
    CONNECTION = "connection"
    COOKIE = "cookie"
    REFERRER_POLICY = "referrer policy"


# Python looks up a name of a module ten times as fast as a member of an enum, here for each header.
FORWARD, DROP, READ, READ_AND_FORWARD, RELAY = _RequestAction
SEND, DROP_RESPONSE, SEND_IF_PUBLIC, CORS, CONNECTION, COOKIE, REFERRER_POLICY = _ResponseAction
HOP_BY_HOP: Final = frozenset(  # RFC 9110, 7.6.1
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization proxy-authentication-info"
    b" te trailer trailers transfer-encoding upgrade http2-settings".split()
)
FORGEABLE: Final = frozenset(b"forwarded x-real-ip x-client-ip x-cluster-client-ip true-client-ip".split())
SINGLE: Final = frozenset(  # which may occur once only
    b"host content-length transfer-encoding origin sec-fetch-site sec-fetch-mode authorization".split()
)
REQUEST_ACTIONS: Final[Mapping[bytes, _RequestAction]] = {
    **dict.fromkeys(HOP_BY_HOP | FORGEABLE, DROP),
    **dict.fromkeys(
        b"host cookie connection upgrade authorization content-length transfer-encoding expect"
        b" x-forwarded-for x-gp-gateway".split(),
        READ,
    ),
    **dict.fromkeys(
        b"x-api-key origin accept sec-fetch-site sec-fetch-mode sec-fetch-dest service-worker"
        b" access-control-request-method access-control-request-headers".split(),
        READ_AND_FORWARD,
    ),
}
# Also the names of the other scheme: what was set while the site had no TLS must not reach an app afterwards.
PLATFORM_COOKIES: Final = (b"gp_", b"__host-gp", b"__secure-gp")
PLATFORM_REQUEST_HEADERS: Final = (b"x-forwarded-", b"x-gp-")
PLATFORM_RESPONSE_HEADERS: Final = (b"x-accel-", b"x-gp-")
# X-Accel-* and X-Sendfile are instructions to a reverse proxy, Clear-Site-Data affects the cookies of the whole site,
# and the others affect the host name or its port beyond the session.
DANGEROUS: Final = frozenset(
    b"x-sendfile x-lighttpd-send-file clear-site-data alt-svc strict-transport-security nel report-to".split()
)
CACHING: Final = frozenset(b"cache-control expires pragma".split())
NO_STORE: Final = (b"Cache-Control", b"no-store")
RESPONSE_ACTIONS: Final = {
    b"connection": CONNECTION,
    b"set-cookie": COOKIE,
    b"referrer-policy": REFERRER_POLICY,
    b"x-robots-tag": DROP_RESPONSE,
    b"cross-origin-resource-policy": SEND_IF_PUBLIC,
}
MAX_CACHED_NAMES: Final = 4096  # header names as they were written
MAX_CACHED_NAME_BYTES: Final = 64  # of one: clients choose them, and nothing forgets them
_request_actions: dict[bytes, tuple[_RequestAction, bytes]] = {}
_response_actions: dict[bytes, _ResponseAction] = {}
NO_INDEX: Final = (b"X-Robots-Tag", b"noindex")
# Pages of other origins could not show what authorization refuses to them either; over plain HTTP browsers do not say
# which origin asks.
PRIVATE: Final = (
    (b"Content-Security-Policy", b"frame-ancestors 'self'"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)
SAME_ORIGIN_REFERRER: Final = (b"Referrer-Policy", b"same-origin")
# Values of Connection that name no header to drop.
CONNECTION_OPTIONS: Final = frozenset((b"keep-alive", b"close", b"upgrade", b"content-length", b""))
KEEPS_ALIVE: Final = [b"keep-alive"]  # the most frequent one
UPGRADE_HEADERS: Final = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))


@dataclass(slots=True)
class RequestHead:
    """A parsed request line and header section. `target` is the request target as it was sent."""

    method: bytes
    target: bytes
    headers: list[Header]
    is_http_10: bool = False


@dataclass(slots=True)
class ClassifiedHeaders:
    """A request's headers: those that are read here, by lower-case name, and those that are forwarded unchanged."""

    known: dict[bytes, bytes]
    forwarded: list[Header]


def classify(headers: Iterable[Header], *, is_relayed: bool = False) -> ClassifiedHeaders:
    """Classify a request's headers; if a web process relays it, its `X-Forwarded-*` are forwarded, else dropped.

    Raises MalformedRequestError if one of SINGLE occurs twice.
    """
    known: dict[bytes, bytes] = {}
    repeated: dict[bytes, list[bytes]] = {}
    forwarded: list[Header] = []
    for header in headers:
        action, name = _request_actions.get(header[0]) or _find_request_action(header[0])
        if action is FORWARD:
            forwarded.append(header)
        elif action is READ or action is READ_AND_FORWARD:
            if name not in known:
                known[name] = header[1]
            else:
                repeated.setdefault(name, [known[name]]).append(header[1])
            if action is READ_AND_FORWARD:
                forwarded.append(header)
        elif is_relayed and action is RELAY:
            forwarded.append(header)
    for name, values in repeated.items():
        known[name] = _joined(name, values)
    if b"connection" in known:
        forwarded = without_named(forwarded, known[b"connection"])
    return ClassifiedHeaders(known, forwarded)


def _find_request_action(written: bytes) -> tuple[_RequestAction, bytes]:
    """Return the action for a header name as written, and the name in lower case; cached."""
    name = written.lower()
    action = REQUEST_ACTIONS.get(name, FORWARD)
    if action is FORWARD:
        if name.startswith(PLATFORM_REQUEST_HEADERS):
            action = RELAY if name.startswith(b"x-forwarded-") else DROP
        elif b"_" in name and _is_disguised(name):
            action = DROP
    if len(written) <= MAX_CACHED_NAME_BYTES:
        _make_room(_request_actions)
        _request_actions[written] = action, name
    return action, name


def without_named(headers: list[Header], connection: bytes) -> list[Header]:
    """Return the headers without those that a Connection header's value names (RFC 9110, 7.6.1)."""
    if connection.lower() in (b"keep-alive", b"close", b"upgrade"):
        return headers
    named = {option.strip().lower() for option in connection.split(b",")} - CONNECTION_OPTIONS
    return [header for header in headers if header[0].lower() not in named] if named else headers


def strip_platform_cookies(value: bytes) -> bytes:
    """Return a Cookie header's value without the platform's cookies; empty if no other is left."""
    pairs = (pair.strip() for pair in value.split(b";"))
    return b"; ".join(pair for pair in pairs if pair and not is_platform_cookie(pair.partition(b"=")[0].strip()))


def cookie_values(header: bytes, name: bytes) -> list[bytes]:
    """Return the values of all cookies of this name, in order."""
    pairs = (pair.partition(b"=") for pair in header.split(b";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def is_platform_cookie(name: bytes) -> bool:
    """Return whether a cookie's name is one of the platform's; an app may neither read nor set it."""
    return name.lower().startswith(PLATFORM_COOKIES)


def filter_response_headers(
    headers: Iterable[Header], *, is_public: bool, has_cors_rules: bool = False
) -> list[Header]:
    """Return the headers of an app's response for the browser, without framing, and with those that are added.

    `has_cors_rules`: what the app says of other origins is dropped, since the platform says it.
    """
    sent: list[Header] = []
    connection: list[bytes] = []
    has_referrer_policy = False
    for header in headers:
        action = _response_actions.get(header[0]) or _find_response_action(header[0])
        if action is SEND or (is_public and (action is SEND_IF_PUBLIC or (action is CORS and not has_cors_rules))):
            sent.append(header)
        elif action is CONNECTION:
            connection.append(header[1])
        elif action is COOKIE:
            sent += _confined_cookie(header)
        elif action is REFERRER_POLICY:
            has_referrer_policy = True
            sent.append(header)
    if connection and connection != KEEPS_ALIVE:
        sent = without_named(sent, b",".join(connection))
    sent.append(NO_INDEX)
    if not is_public:
        sent += PRIVATE
    if not has_referrer_policy:
        sent.append(SAME_ORIGIN_REFERRER)
    return sent


def without_caching(headers: list[Header]) -> list[Header]:
    """Return a response's headers with `no-store`, for origins that another app may have later."""
    return [*(header for header in headers if header[0].lower() not in CACHING), NO_STORE]


def _find_response_action(written: bytes) -> _ResponseAction:
    """Return the action for a header name as written; cached."""
    name = written.lower()
    action = SEND
    if name in RESPONSE_ACTIONS:
        action = RESPONSE_ACTIONS[name]
    elif name in HOP_BY_HOP or name in DANGEROUS or name.startswith(PLATFORM_RESPONSE_HEADERS):
        action = DROP_RESPONSE
    elif name.startswith(b"access-control-"):
        action = CORS
    if len(written) <= MAX_CACHED_NAME_BYTES:
        _make_room(_response_actions)
        _response_actions[written] = action
    return action


def _make_room(cache: dict[bytes, Any]) -> None:
    """Empty a full cache: what one client has filled it with must not keep out what all others send."""
    if len(cache) >= MAX_CACHED_NAMES:
        cache.clear()


def strip_hop_by_hop(headers: Iterable[Header]) -> list[Header]:
    """Return a response's headers without those that concern one connection only (RFC 9110, 7.6.1)."""
    all_headers = list(headers)
    connection = b",".join(value for name, value in all_headers if name.lower() == b"connection")
    return without_named([header for header in all_headers if header[0].lower() not in HOP_BY_HOP], connection)


def _confined_cookie(header: Header) -> list[Header]:
    """Return a Set-Cookie header confined to the host that sets it; none if its name is the platform's or missing."""
    first, *attributes = header[1].split(b";")
    name, equals, _ = first.partition(b"=")
    if not equals or not name.strip() or is_platform_cookie(name.strip()):
        return []
    confined = [each for each in attributes if each.partition(b"=")[0].strip().lower() != b"domain"]
    return [(header[0], b";".join([first, *confined]))]


def _joined(name: bytes, values: Sequence[bytes]) -> bytes:
    if name in SINGLE:
        raise MalformedRequestError(f"two {name.decode()} headers")
    return (b"; " if name == b"cookie" else b", ").join(values)


def _is_disguised(name: bytes) -> bool:
    """Return whether a server that takes underscores for dashes would read a header that apps must not get."""
    plain = name.replace(b"_", b"-")
    return plain in REQUEST_ACTIONS or plain.startswith(PLATFORM_REQUEST_HEADERS)
