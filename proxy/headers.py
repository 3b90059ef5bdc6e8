"""What of a request's head reaches an app, and what of an app's answer reaches the browser.

Heads are forwarded by being written anew from parsed fields, so that no byte is read differently further on. Names of
headers keep their case; pairs are `(name, value)`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

Header = tuple[bytes, bytes]


class MalformedRequestError(Exception):
    """A head that must not be forwarded; the words say why."""


class _Fate(Enum):
    """What becomes of a header of a request."""

    FORWARD = "forward"  # of no interest here
    DROP = "drop"
    NOTE = "note"  # read here, and written anew if at all
    KEEP = "keep"  # read here, and forwarded as it is
    RELAY = "relay"  # forwarded when it comes from a web process


class _AnswerFate(Enum):
    """What becomes of a header of an answer."""

    SEND = "send"
    DROP = "drop"
    PUBLIC = "public"  # passes for public apps
    CONNECTION = "connection"
    COOKIE = "cookie"
    POLICY = "policy"


# Python finds a name of a module ten times as fast as a member of an enum, and here it does so for each header.
FORWARD, DROP, NOTE, KEEP, RELAY = _Fate
SEND, DROP_ANSWER, PUBLIC, CONNECTION, COOKIE, POLICY = _AnswerFate
HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization proxy-authentication-info"
    b" te trailer trailers transfer-encoding upgrade http2-settings".split()
)
FORGEABLE: Final = frozenset(b"forwarded x-real-ip x-client-ip x-cluster-client-ip true-client-ip".split())
ONCE: Final = frozenset(
    b"host content-length transfer-encoding origin sec-fetch-site sec-fetch-mode authorization".split()
)
FATES: Final[Mapping[bytes, _Fate]] = {
    **dict.fromkeys(HOP_BY_HOP | FORGEABLE, DROP),
    **dict.fromkeys(
        b"host cookie connection upgrade authorization content-length transfer-encoding expect"
        b" x-forwarded-for x-gp-gateway".split(),
        NOTE,
    ),
    **dict.fromkeys(b"origin accept sec-fetch-site sec-fetch-mode sec-fetch-dest service-worker".split(), KEEP),
}
# Also the names of the other scheme: what was set while the site had no TLS must not reach an app afterwards.
OUR_COOKIES: Final = (b"gp_", b"__host-gp", b"__secure-gp")
OURS_IN_REQUESTS: Final = (b"x-forwarded-", b"x-gp-")
# X-Accel-* and X-Sendfile are orders to a server in front, Clear-Site-Data reaches the cookies of the whole site, and
# the others bind the host name or its port beyond the session.
DANGEROUS: Final = frozenset(
    b"x-sendfile x-lighttpd-send-file clear-site-data alt-svc strict-transport-security nel report-to".split()
)
CACHING: Final = frozenset(b"cache-control expires pragma".split())
NO_STORE: Final = (b"Cache-Control", b"no-store")
SPECIAL_IN_ANSWERS: Final = {
    b"connection": CONNECTION,
    b"set-cookie": COOKIE,
    b"referrer-policy": POLICY,
    b"x-robots-tag": DROP_ANSWER,
    b"cross-origin-resource-policy": PUBLIC,
}
NAMES_REMEMBERED: Final = 4096  # of headers, as they were written; others are looked at each time
_FATES_SEEN: dict[bytes, tuple[_Fate, bytes]] = {}
_ANSWERS_SEEN: dict[bytes, _AnswerFate] = {}
OURS_IN_ANSWERS: Final = (b"x-accel-", b"x-gp-")
NO_INDEX: Final = (b"X-Robots-Tag", b"noindex")
# What admission refuses to other origins they could not show either: over plain HTTP browsers do not say who asks.
PRIVATE: Final = (
    (b"Content-Security-Policy", b"frame-ancestors 'self'"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)
SAME_ORIGIN_REFERRER: Final = (b"Referrer-Policy", b"same-origin")
NOT_NAMED: Final = frozenset((b"keep-alive", b"close", b"upgrade", b"content-length", b""))  # by a Connection header
UPGRADE_HEADERS: Final = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))


@dataclass(slots=True)
class RequestHead:
    """A request's head as parsed. `target` is what stood between method and version."""

    method: bytes
    target: bytes
    headers: list[Header]
    is_http_10: bool = False


@dataclass(slots=True)
class ClassifiedHeaders:
    """A request's headers: those that mean something to us, by lower-case name, and those that go on as they are."""

    noted: dict[bytes, bytes]
    kept: list[Header]


def classify(headers: Iterable[Header], *, is_relayed: bool = False) -> ClassifiedHeaders:
    """Sort a request's headers; one that a web process relays says truly whom it is for, others only claim to.

    Raises Malformed when a header occurs twice that may not.
    """
    noted: dict[bytes, bytes] = {}
    kept: list[Header] = []
    for pair in headers:
        fate, name = _FATES_SEEN.get(pair[0]) or _learn_fate(pair[0])
        if fate is FORWARD:
            kept.append(pair)
        elif fate is NOTE or fate is KEEP:
            noted[name] = pair[1] if name not in noted else _joined(name, noted[name], pair[1])
            if fate is KEEP:
                kept.append(pair)
        elif is_relayed and fate is RELAY:
            kept.append(pair)
    if b"connection" in noted:
        kept = without_named(kept, noted[b"connection"])
    return ClassifiedHeaders(noted, kept)


def _learn_fate(written: bytes) -> tuple[_Fate, bytes]:
    """Return what becomes of a header, and its name in lower case; remembered by the name as written."""
    name = written.lower()
    fate = FATES.get(name, FORWARD)
    if fate is FORWARD:
        if name.startswith(OURS_IN_REQUESTS):
            fate = RELAY if name.startswith(b"x-forwarded-") else DROP
        elif b"_" in name and _is_disguised(name):
            fate = DROP
    if len(_FATES_SEEN) < NAMES_REMEMBERED:
        _FATES_SEEN[written] = fate, name
    return fate, name


def without_named(pairs: list[Header], connection: bytes) -> list[Header]:
    """Return the pairs without those that a Connection header names as meant for one hop."""
    if connection.lower() in (b"keep-alive", b"close", b"upgrade"):
        return pairs
    named = {token.strip().lower() for token in connection.split(b",")} - NOT_NAMED
    return [pair for pair in pairs if pair[0].lower() not in named] if named else pairs


def strip_platform_cookies(header: bytes) -> bytes:
    """Return a Cookie header's value without our cookies; empty if no other is left."""
    crumbs = (crumb.strip() for crumb in header.split(b";"))
    return b"; ".join(crumb for crumb in crumbs if crumb and not is_platform_cookie(crumb.partition(b"=")[0].strip()))


def cookie_values(header: bytes, name: bytes) -> list[bytes]:
    """Return the values of all cookies of this name, in order."""
    pairs = (crumb.partition(b"=") for crumb in header.split(b";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def is_platform_cookie(name: bytes) -> bool:
    """Return whether a cookie of this name is ours; an app may neither see nor set it."""
    return name.lower().startswith(OUR_COOKIES)


def filter_response_headers(headers: Iterable[Header], *, is_public: bool) -> list[Header]:
    """Return what of an app's headers the browser gets, without framing, and those that we add."""
    kept: list[Header] = []
    connection = b""
    has_referrer_policy = False
    for pair in headers:
        fate = _ANSWERS_SEEN.get(pair[0]) or _learn_answer(pair[0])
        if fate is SEND or (fate is PUBLIC and is_public):
            kept.append(pair)
        elif fate is CONNECTION:
            connection = connection + b"," + pair[1] if connection else pair[1]
        elif fate is COOKIE:
            kept += _own_cookie(pair)
        elif fate is POLICY:
            has_referrer_policy = True
            kept.append(pair)
    if connection:
        kept = without_named(kept, connection)
    kept.append(NO_INDEX)
    if not is_public:
        kept += PRIVATE
    if not has_referrer_policy:
        kept.append(SAME_ORIGIN_REFERRER)
    return kept


def without_caching(headers: list[Header]) -> list[Header]:
    """Return an answer's headers so that browsers keep nothing of it: another app may have its origin tomorrow."""
    return [*(pair for pair in headers if pair[0].lower() not in CACHING), NO_STORE]


def _learn_answer(written: bytes) -> "_AnswerFate":
    """Return what becomes of an answer's header; remembered by the name as written."""
    name = written.lower()
    fate = SEND
    if name in SPECIAL_IN_ANSWERS:
        fate = SPECIAL_IN_ANSWERS[name]
    elif name in HOP_BY_HOP or name in DANGEROUS or name.startswith(OURS_IN_ANSWERS):
        fate = DROP_ANSWER
    elif name.startswith(b"access-control-"):
        fate = PUBLIC
    if len(_ANSWERS_SEEN) < NAMES_REMEMBERED:
        _ANSWERS_SEEN[written] = fate
    return fate


def strip_hop_by_hop(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of an answer that go further than one hop: all that a gateway takes away."""
    pairs = list(headers)
    connection = b",".join(value for name, value in pairs if name.lower() == b"connection")
    return without_named([pair for pair in pairs if pair[0].lower() not in HOP_BY_HOP], connection)


def _own_cookie(pair: Header) -> list[Header]:
    """Return a Set-Cookie header confined to the host that sets it; none if its name is ours or missing."""
    first, *attributes = pair[1].split(b";")
    name, equals, _ = first.partition(b"=")
    if not equals or not name.strip() or is_platform_cookie(name.strip()):
        return []
    confined = [each for each in attributes if each.partition(b"=")[0].strip().lower() != b"domain"]
    return [(pair[0], b";".join([first, *confined]))]


def _joined(name: bytes, first: bytes, second: bytes) -> bytes:
    if name in ONCE:
        raise MalformedRequestError(f"two {name.decode()} headers")
    return first + (b"; " if name == b"cookie" else b", ") + second


def _is_disguised(name: bytes) -> bool:
    """Return whether a server that turns dashes into underscores would take it for a header that is not for apps."""
    plain = name.replace(b"_", b"-")
    return plain in FATES or plain.startswith(OURS_IN_REQUESTS)
