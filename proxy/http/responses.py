"""Responses that the data plane generates itself, without an app: redirects, error pages and status lines."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
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
    '<meta name="color-scheme" content="light dark"><title>{title}</title>{head}<style>'
    "body{{font:15px/1.5 system-ui,sans-serif;max-width:25rem;margin:22vh auto 0;padding:0 1rem;"
    "background:light-dark(#f5f6fa,#0e1117);color:light-dark(#1c2130,#dfe4ee)}}"
    "main{{padding:1.75rem;border:1px solid light-dark(#e2e5ee,#2a3140);border-radius:12px;"
    "background:light-dark(#fff,#161b24)}}"
    "body>p{{text-align:center;font-weight:650}}h1{{font-size:1.25rem;line-height:1.3;margin:0;overflow-wrap:anywhere}}"
    "body:has(pre:not([hidden])){{max-width:42rem}}"
    "pre{{display:flex;flex-direction:column-reverse;max-height:16rem;margin:1rem 0 0;"
    "padding:.75rem;overflow:auto;border-radius:8px;font-size:12px;"
    "white-space:pre-wrap;overflow-wrap:anywhere;background:light-dark(#f5f6fa,#0e1117)}}[hidden]{{display:none}}"
    "main p{{margin:.75rem 0 0}}a{{display:inline-block;padding:.5rem 1rem;border-radius:8px;"
    "background:#4f46e5;color:#fff;text-decoration:none}}</style>"
    "<p>GPU Platform</p><main{state}><h1>{title}</h1><p>{text}</p>{output}{link}</main>{script}</html>"
)
# The page of an app that cannot be used yet: shows what the host finds, and loads its own address again once the app
# answers. It asks after a second, then ever less often, and not at the same moment as all others.
MAX_POLL_SECONDS: Final = 15
WATCH: Final = f"""
const main = document.querySelector("main"), [title, text, output] = main.querySelectorAll("h1, p, pre");
let seconds = 1, asked = 0;
const again = () => setTimeout(look, seconds * (750 + Math.random() * 500));
const look = async () => {{
  seconds = Math.min(seconds * 1.5, {MAX_POLL_SECONDS});
  asked += 1;
  let found;
  try {{
    const response = await fetch("/.gp/status?look", {{ cache: "no-store" }});
    if (!response.ok) return location.reload();
    found = await response.json();
  }} catch {{
    return again();
  }}
  if (found.state === "ready") {{
    if (main.dataset.state !== "unreachable" || asked > 3) return location.reload();
  }} else {{
    main.dataset.state = found.state;
    document.title = title.textContent = found.title;
    text.textContent = found.detail + (found.state === "starting" ? " This page goes on to it by itself." : "");
    output.textContent = found.output || "";
    output.hidden = !found.output;
  }}
  again();
}};
again();
"""
RELOAD: Final = '<noscript><meta http-equiv="refresh" content="5"></noscript>'
WATCH_POLICY: Final = (
    b"Content-Security-Policy",
    b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; connect-src 'self'; script-src 'sha256-"
    + b64encode(sha256(WATCH.encode()).digest())
    + b"'",
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

    def with_headers(self, added: HeaderSequence) -> "LocalResponse":
        """Return the response with these headers too."""
        return replace(self, headers=(*self.headers, *added))

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
    state: str = ""  # of an app that the page waits for
    output: str = ""  # its last lines


def page(status: int, content: PageContent, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return an HTML page that loads no other resource; `extra` are additional headers."""
    link = f'<p><a href="{escape(content.link[0])}">{escape(content.link[1])}</a></p>' if content.link else ""
    state, output, script = "", "", ""
    if content.state:
        state, script = f' data-state="{escape(content.state)}"', f'<script type="module">{WATCH}</script>'
        output = f"<pre{'' if content.output else ' hidden'}>{escape(content.output)}</pre>"
        extra = (WATCH_POLICY, *extra)
    body = PAGE.format(
        title=escape(content.title),
        text=escape(content.text),
        link=link,
        state=state,
        output=output,
        script=script,
        head=RELOAD if content.state else "",
    ).encode()
    return _response(status, b"text/html; charset=utf-8", body, extra, closes=closes)


def text(status: int, body: str, *extra: tuple[bytes, bytes], closes: bool = False) -> LocalResponse:
    """Return one line of plain text; `extra` are additional headers."""
    return _response(status, b"text/plain; charset=utf-8", body.encode() + b"\n", extra, closes=closes)


def json_text(status: int, body: str) -> LocalResponse:
    """Return a JSON document that is serialized already."""
    return _response(status, b"application/json", body.encode(), ())


def problem(status: int, body: str, *extra: tuple[bytes, bytes], closes: bool) -> LocalResponse:
    """Return problem details (RFC 9457) that are serialized already; `extra` are additional headers."""
    return _response(status, b"application/problem+json", body.encode(), extra, closes=closes)


def redirect(location: str, *extra: tuple[bytes, bytes]) -> LocalResponse:
    """Return 303 See Other. Raises ValueError unless the location is printable ASCII without spaces."""
    if not location.isascii() or not location.isprintable() or " " in location:
        raise ValueError("an address of printable ASCII characters is needed")
    return _response(303, b"text/plain", b"", ((b"Location", location.encode()), *extra))


def _response(
    status: int, content_type: bytes, body: bytes, extra: HeaderSequence, *, closes: bool = False
) -> LocalResponse:
    length = str(len(body)).encode()
    replaced = {name for name, _ in extra}
    common = [header for header in COMMON_HEADERS if header[0] not in replaced]
    headers = (*common, *extra, (b"Content-Type", content_type), (b"Content-Length", length))
    return LocalResponse(status=status, headers=headers, body=body, closes=closes)


RESPONSE_TIMEOUT: Final = page(
    504,
    PageContent(title="The app does not answer", text="It may be busy or starting. Try again in a moment."),
    closes=True,
)
UPSTREAM_FAILED: Final = page(
    502,
    PageContent(title="The app did not answer properly", text="It hung up, or sent what is no HTTP."),
    closes=True,
)
HEAD_TOO_LARGE: Final = text(431, "The header section of this request is too large.", closes=True)
TOO_MANY_REQUESTS: Final = text(429, "Too many requests came at once over this connection.", closes=True)
BAD_REQUEST: Final = text(400, "Bad request: this is not HTTP/1.1 as it should be.", closes=True)
REQUEST_TIMEOUT: Final = text(408, "The request took too long.", closes=True)
INTERNAL_ERROR: Final = text(500, "Something went wrong here; it has been noted.", closes=True)


def upstream_failed(*, is_silent: bool) -> LocalResponse:
    """Return 504 for an app that has not responded in time, 502 for one that has hung up or sent no HTTP."""
    return RESPONSE_TIMEOUT if is_silent else UPSTREAM_FAILED
