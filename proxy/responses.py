"""What the data plane answers by itself, without an app."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]

ALWAYS: Final = (
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
    """A whole answer. A connection ends after it where `closes`: what the client sent cannot be told apart safely."""

    status: int
    headers: Headers
    body: bytes = b""
    closes: bool = False

    def to_bytes(self, *, with_body: bool = True, closes: bool = False) -> bytes:
        """Return it as HTTP/1.1."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n".encode()]
        lines += [b"%b: %b\r\n" % header for header in self.headers]
        if closes or self.closes:
            lines.append(b"Connection: close\r\n")
        return b"".join([*lines, b"\r\n", self.body if with_body else b""])


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """What a page says."""

    title: str
    text: str
    link: tuple[str, str] | None = field(default=None)  # address and text


def page(status: int, words: PageContent, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return a page in words, as HTML that asks for nothing else."""
    link = f'<p><a href="{escape(words.link[0])}">{escape(words.link[1])}</a></p>' if words.link else ""
    body = PAGE.format(title=escape(words.title), text=escape(words.text), link=link).encode()
    return _respond(status, b"text/html; charset=utf-8", body, extra, closes=closes)


def text(status: int, body: str, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return a line of text."""
    return _respond(status, b"text/plain; charset=utf-8", body.encode() + b"\n", extra, closes=closes)


def json_text(status: int, body: str) -> LocalResponse:
    """Return JSON that is written already."""
    return _respond(status, b"application/json", body.encode(), ())


def redirect(location: str, *extra: tuple[bytes, bytes]) -> LocalResponse:
    """Return a redirect that turns into a GET. Raises ValueError for an address that no header can have."""
    if not location.isascii() or not location.isprintable() or " " in location:
        raise ValueError("an address of printable ASCII characters is needed")
    return _respond(303, b"text/plain", b"", ((b"Location", location.encode()), *extra))


def _respond(status: int, kind: bytes, body: bytes, extra: Headers, *, closes: bool = False) -> LocalResponse:
    length = str(len(body)).encode()
    headers = (*ALWAYS, *extra, (b"Content-Type", kind), (b"Content-Length", length))
    return LocalResponse(status=status, headers=headers, body=body, closes=closes)
