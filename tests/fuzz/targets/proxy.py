"""What strangers send to the listener: heads, framing, cookies and signatures; and what apps answer."""

import base64
from collections import deque
from contextlib import suppress
from dataclasses import astuple
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import urljoin, urlsplit

from proxy.authorization.authentication import ClientAuthentication
from proxy.authorization.gateway_tokens import VerifiedTokens
from proxy.authorization.login_flow import NEXT
from proxy.authorization.networks import is_inside
from proxy.authorization.signing import COOKIE, Grant, InvalidSignatureError, Keys
from proxy.balancing.response_usage import MAX_COUNT, UsageReader
from proxy.http.headers import (
    DANGEROUS,
    FORGEABLE,
    HOP_BY_HOP,
    MalformedRequestError,
    classify,
    cookie_values,
    filter_response_headers,
    header_line,
    strip_platform_cookies,
)
from proxy.http.response_parser import BodyFraming, MalformedResponseError, ResponseHead, ResponseParser
from proxy.limits import ProxyLimits
from proxy.listener.dispatch import is_for_app
from proxy.listener.exchange import Exchange
from proxy.listener.request_parser import HeadTooLargeError, RequestParser, TooManyRequestsError
from proxy.site import LABEL, Site

LIMIT: Final = 2**20  # more than an input has: what is limited in whole reads depends on how bytes come
KEYS: Final = Keys(["a:0123456789abcdef"])
SITE: Final = Site(platform_url="https://gpu.example.org", apps_domain="apps.example.org")


def _requests(pieces: list[bytes]) -> tuple[list[Any], bytes | None]:
    """Return what is read of a client that sends these pieces, up to what is refused, and what is no HTTP any more."""
    client: Any = SimpleNamespace(
        limits=ProxyLimits(head_bytes=LIMIT), deadline=0.0, loop=SimpleNamespace(time=lambda: 0.0)
    )
    exchanges: deque[Exchange] = deque()
    parser = RequestParser(cast(Any, client), exchanges)
    rest = None
    with suppress(MalformedRequestError, HeadTooLargeError, TooManyRequestsError):
        for piece in filter(None, pieces):
            rest = rest + piece if rest is not None else parser.feed(piece)
    return [(each.request, b"".join(each.body), each.request_state) for each in exchanges], rest


def _in_pieces(data: bytes) -> list[bytes]:
    """Return what follows the first byte, in pieces of the length that it says."""
    size, rest = max(1, data[0]), data[1:]
    return [rest[at : at + size] for at in range(0, len(rest), size)]


def request(data: bytes) -> None:
    """However a request's bytes come, they mean the same; what is forwarded reads as what was parsed."""
    if not data:
        return
    whole, rest = _requests([data[1:]])
    assert _requests(_in_pieces(data)) == (whole, rest)
    for head, _, _ in whole:
        with suppress(MalformedRequestError):
            _check_forwarded(classify(head.headers).forwarded)
        line = b" ".join((head.method, head.target, b"HTTP/1.0" if head.is_http_10 else b"HTTP/1.1"))
        kept = [each for each in head.headers if each[0].lower() not in HOP_BY_HOP | {b"content-length"}]
        [(again, _, _)], _ = _requests([b"\r\n".join([line, *map(header_line, kept), b"", b""])])
        assert (again.method, again.target, again.headers) == (head.method, head.target, kept)


def _check_forwarded(forwarded: list[tuple[bytes, bytes]]) -> None:
    for name, value in forwarded:
        plain = name.lower().replace(b"_", b"-")
        assert plain not in FORGEABLE | HOP_BY_HOP
        assert not plain.startswith((b"x-forwarded-", b"x-gp-"))
        assert not {*b"\r\n\0"} & {*name, *value}


def _response(pieces: list[bytes]) -> tuple[ResponseHead | None, bytes, bool, bool]:
    """Return the head, what is behind it, and whether the body is complete, and refused."""
    parser = ResponseParser(LIMIT)
    parser.expect(is_head_request=False, may_upgrade=True)
    head, body = None, b""
    try:
        for piece in pieces:
            if head is None:
                head = parser.feed_head(piece)
                piece = parser.rest if head else b""
            body += piece
            if piece and head and head.framing is BodyFraming.CHUNKED:
                parser.feed_chunks(piece)
    except MalformedResponseError:
        return head, b"", False, True
    return head, body, parser.is_complete, False


def response(data: bytes) -> None:
    """However an app's response comes, it means the same, and brings no header that apps may not send."""
    if not data:
        return
    whole = _response([data[1:]])
    again = _response(_in_pieces(data))
    assert (again[0] and astuple(again[0]), *again[1:]) == (whole[0] and astuple(whole[0]), *whole[1:])
    if head := whole[0]:
        for name, value in filter_response_headers(head.headers, is_public=True):
            plain = name.lower()
            assert plain not in DANGEROUS | HOP_BY_HOP
            assert not {*b"\r\n\0"} & {*name, *value}
            if plain == b"set-cookie":
                attributes = [each.partition(b"=")[0].strip().lower() for each in value.split(b";")[1:]]
                assert b"domain" not in attributes
                assert not value.lstrip().lower().startswith((b"gp_", b"__host-gp", b"__secure-gp"))


def token_usage(data: bytes) -> None:
    """What a model's server says of its tokens is two numbers within bounds, whatever it sends."""
    for is_chunked in (False, True):
        reader = UsageReader(is_chunked=is_chunked)
        for piece in _in_pieces(data) if data else ():
            reader.feed(piece)
        used = reader.used()
        assert 0 <= used.prompt_tokens <= MAX_COUNT
        assert 0 <= used.completion_tokens <= MAX_COUNT


def first_request(data: bytes) -> None:
    """The protocol that is chosen for a connection is that of the host that the parser finds.

    llhttp takes a bare line feed after a request line without a version; then either protocol refuses the other's host.
    """
    found, _ = _requests([data])
    hosts = [value for name, value in found[0][0].headers if name.lower() == b"host"] if found else []
    is_app = is_for_app(SITE.is_of_apps, data)
    if len(hosts) == 1 and b"\n" not in data.replace(b"\r\n", b""):
        assert is_app == SITE.is_of_apps(hosts[0])


def host(data: bytes) -> None:
    """A Host header names an app by a valid label, or none."""
    label = SITE.label_of(data)
    assert label is None or (LABEL.fullmatch(label) and SITE.is_of_apps(data))


def cookies(data: bytes) -> None:
    """No app gets a cookie of the platform, and none is found under another name."""
    stripped = strip_platform_cookies(data)
    names = [pair.partition(b"=")[0].strip().lower() for pair in stripped.split(b";")]
    assert not any(name.startswith((b"gp_", b"__host-gp", b"__secure-gp")) for name in names)
    assert strip_platform_cookies(stripped) == stripped
    for value in cookie_values(data, b"gp_app"):
        assert b";" not in value
        _check_grant(value.decode("latin-1"))


def grant(data: bytes) -> None:
    """Even what is signed is refused by its own error unless it has the fields of a grant."""
    body = base64.urlsafe_b64encode(data).decode().rstrip("=")
    signed = f"v1.a.{body}.{KEYS.sign(COOKIE, ['x']).rpartition('.')[2]}"
    _check_grant(signed)
    _check_grant(data.decode("latin-1"))
    with suppress(UnicodeDecodeError):
        _check_grant(KEYS.sign(COOKIE, data.decode().split("|")))
    assert VerifiedTokens(KEYS).verify(data) is None


def _check_grant(value: str) -> None:
    with suppress(InvalidSignatureError):
        found = Grant.from_cookie(KEYS, value)
        assert repr(Grant.from_cookie(KEYS, found.to_cookie(KEYS))) == repr(found)  # nan is not equal to itself


def next_address(data: bytes) -> None:
    """Where a browser goes after its log-in is on the app's own origin."""
    text = data.decode("latin-1")
    if NEXT.fullmatch(text):
        assert urlsplit(urljoin("https://a--b.apps.example.org/", text))[:2] == ("https", "a--b.apps.example.org")


def forwarded_for(data: bytes) -> None:
    """The client's address is that of the peer unless the trusted proxy there says another, whatever else is named."""
    trusted = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
    authentication = ClientAuthentication(
        site=SITE, table=cast(Any, None), keys=KEYS, login_flow=cast(Any, None), trusted_proxies=trusted, now=float
    )
    known = {b"x-forwarded-for": data}
    assert authentication.client("192.0.2.1", known) == "192.0.2.1"
    said = authentication.client("10.0.0.1", known)
    assert "," not in said
    is_inside(said, trusted)
