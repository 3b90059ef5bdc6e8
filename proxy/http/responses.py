"""Responses that the data plane generates itself, without an app: redirects, error pages and status lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Final

HeaderSequence = Sequence[tuple[bytes, bytes]]

COMMON_HEADERS: Final = (
    (b"Cache-Control", b"no-store"),
    (b"Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"X-Robots-Tag", b"noindex"),
)
PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>{title}</title><style>'
    "body{{font:15px/1.5 system-ui,sans-serif;max-width:25rem;margin:22vh auto 0;padding:0 1rem;"
    "background:light-dark(#f5f6fa,#0e1117);color:light-dark(#1c2130,#dfe4ee)}}"
    "main{{padding:1.75rem;border:1px solid light-dark(#e2e5ee,#2a3140);border-radius:12px;"
    "background:light-dark(#fff,#161b24)}}"
    "body>p{{text-align:center;font-weight:650}}h1{{font-size:1.25rem;line-height:1.3;margin:0}}"
    "main p{{margin:.75rem 0 0}}a{{display:inline-block;padding:.5rem 1rem;border-radius:8px;"
    "background:#4f46e5;color:#fff;text-decoration:none}}</style>"
    "<p>GPU Platform</p><main><h1>{title}</h1><p>{text}</p>{link}</main></html>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResponse:
    """A complete response.

    `closes`: the connection must end after it, since a request body may follow that is not read (RFC 9112, 9.3).
    """

    status: int
    headers: HeaderSequence
    body: bytes = b""
    closes: bool = False

    def to_bytes(self, *, with_body: bool = True, closes: bool = False) -> bytes:
        """Return the response as an HTTP/1.1 message, without its content for HEAD requests."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n".encode()]
        lines += [b"%b: %b\r\n" % header for header in self.headers]
        if closes or self.closes:
            lines.append(b"Connection: close\r\n")
        return b"".join([*lines, b"\r\n", self.body if with_body else b""])


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """The text of an HTML page, unescaped."""

    title: str
    text: str
    link: tuple[str, str] | None = None  # URL and link text


def page(status: int, content: PageContent, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return an HTML page that loads no other resource; `extra` are additional headers."""
    link = f'<p><a href="{escape(content.link[0])}">{escape(content.link[1])}</a></p>' if content.link else ""
    body = PAGE.format(title=escape(content.title), text=escape(content.text), link=link).encode()
    return _response(status, b"text/html; charset=utf-8", body, extra, closes=closes)


def text(status: int, body: str, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return one line of plain text; `extra` are additional headers."""
    return _response(status, b"text/plain; charset=utf-8", body.encode() + b"\n", extra, closes=closes)


def json_text(status: int, body: str) -> LocalResponse:
    """Return a JSON document that is serialized already."""
    return _response(status, b"application/json", body.encode(), ())


def redirect(location: str, *extra: tuple[bytes, bytes]) -> LocalResponse:
    """Return 303 See Other. Raises ValueError unless the location is printable ASCII without spaces."""
    if not location.isascii() or not location.isprintable() or " " in location:
        raise ValueError("an address of printable ASCII characters is needed")
    return _response(303, b"text/plain", b"", ((b"Location", location.encode()), *extra))


def _response(
    status: int, content_type: bytes, body: bytes, extra: HeaderSequence, *, closes: bool = False
) -> LocalResponse:
    length = str(len(body)).encode()
    headers = (*COMMON_HEADERS, *extra, (b"Content-Type", content_type), (b"Content-Length", length))
    return LocalResponse(status=status, headers=headers, body=body, closes=closes)


RESPONSE_TIMEOUT: Final = page(
    504,
    PageContent(title="The app does not answer", text="It may be busy or starting. Try again in a moment."),
    closes=True,
)
UPSTREAM_UNREACHABLE: Final = page(
    502,
    PageContent(
        title="The app is not running",
        text="Nothing listens on its port in the session.",
        link=("/.gp/again", "Open it again"),
    ),
    closes=True,
)
UPSTREAM_FAILED: Final = page(
    502,
    PageContent(title="The app did not answer properly", text="It hung up, or sent what is no HTTP."),
    closes=True,
)
HEAD_TOO_LARGE: Final = text(431, "The header section of this request is too large.", closes=True)
BAD_REQUEST: Final = text(400, "Bad request: this is not HTTP/1.1 as it should be.", closes=True)
REQUEST_TIMEOUT: Final = text(408, "The request took too long.", closes=True)
INTERNAL_ERROR: Final = text(500, "Something went wrong here; it has been noted.", closes=True)
