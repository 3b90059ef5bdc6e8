"""One request of a browser and its answer, on the fast carrier."""

import asyncio
from typing import Final

from proxy import responses
from proxy.authorization import ForwardDecision
from proxy.data_plane import ConnectionSlot
from proxy.headers import UPGRADE_HEADERS, Header, RequestHead
from proxy.responses import PageContent
from proxy.upstream_connection import SWITCHING, BodyFraming, ResponseHead, UpstreamConnection

SWITCH_LINES: Final = [b"%b: %b" % pair for pair in UPGRADE_HEADERS]
SILENT: Final = responses.page(
    504,
    PageContent(title="The app does not answer", text="It may be busy or starting. Try again in a moment."),
    closes=True,
)
UNREACHABLE: Final = responses.page(
    502,
    PageContent(
        title="The app is not running",
        text="Nothing listens on its port in the session.",
        link=("/.gp/again", "Open it again"),
    ),
    closes=True,
)
BROKEN: Final = responses.page(
    502,
    PageContent(title="The app did not answer properly", text="It hung up, or sent what is no HTTP."),
    closes=True,
)
TOO_LONG: Final = responses.text(431, "The head of this request is too large.", closes=True)
ENDED: Final = responses.text(403, "Access to this app has ended.", closes=True)
MALFORMED: Final = responses.text(400, "Bad request: this is not HTTP/1.1 as it should be.", closes=True)
TOO_SLOW: Final = responses.text(408, "The request took too long.", closes=True)
FAILED: Final = responses.text(500, "Something went wrong here; it has been noted.", closes=True)
LAST_CHUNK: Final = b"0\r\n\r\n"
REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class Exchange:
    """What is known of a request while it is received, forwarded and answered."""

    __slots__ = (
        "app",
        "body",
        "forward",
        "is_begun",
        "is_kept_alive",
        "is_received",
        "is_reused",
        "is_sent",
        "request",
        "task",
    )

    def __init__(self, request: RequestHead, *, is_kept_alive: bool) -> None:
        self.request = request
        self.is_kept_alive = is_kept_alive  # the client wants to go on after the answer
        self.is_received = False  # the request is whole
        self.is_sent = False  # and the app has all of it
        self.is_begun = False  # the answer is under way
        self.is_reused = False  # the app's connection had served before: it may have ended in the meantime
        self.body: list[bytes] = []  # received and not yet sent on
        self.forward: ForwardDecision | None = None
        self.app: UpstreamConnection | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether the app may be asked again: it has not begun to answer, on a connection that may have been dead."""
        is_empty = self.forward is not None and self.forward.length == 0
        return self.is_reused and not self.is_begun and is_empty and self.request.method in REPEATABLE

    def take_body(self) -> bytes:
        """Return what of the body is to be sent now, as it goes over the wire."""
        forward = self.forward
        body, self.body = self.body, []
        if forward is None or forward.length is not None:
            return b"".join(body)
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in body]
        return b"".join([*chunks, LAST_CHUNK] if self.is_received else chunks)

    def end(self) -> None:
        """Leave the app and whatever is being waited for."""
        if self.app:
            self.app.abort()
            self.app = None
        if self.task:
            self.task.cancel()
            self.task = None


def response_bytes(head: ResponseHead, headers: list[Header], *, closes: bool) -> bytes:
    """Return the head of an app's answer with the headers that its reader gets, and with those of this hop."""
    lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason), *[name + b": " + value for name, value in headers]]
    if head.framing is BodyFraming.CHUNKED:
        lines.append(b"Transfer-Encoding: chunked")
    if head.status == SWITCHING:
        lines += SWITCH_LINES
    elif closes:
        lines.append(b"Connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def needs_slot(slot: ConnectionSlot | None, forward: ForwardDecision) -> bool:
    """Return whether the connection's seat is not this visitor's."""
    return slot is None or slot.principal is not forward.principal or slot.client != forward.client
