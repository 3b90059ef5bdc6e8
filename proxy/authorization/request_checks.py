"""What a request's header section says of it: whether its extent is clear, a body follows, a browser shows a page."""

import re
from typing import Final

from proxy.http.headers import ClassifiedHeaders, MalformedRequestError, RequestHead

HOST: Final = re.compile(rb"[a-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?")
LENGTH: Final = re.compile(rb"[0-9]{1,18}")
CONTINUE: Final = b"100-continue"


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
