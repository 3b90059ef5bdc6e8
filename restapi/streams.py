"""Streams of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import Error, connections
from django.http import StreamingHttpResponse
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import Throttled
from rest_framework.renderers import BaseRenderer
from rest_framework.utils.encoders import JSONEncoder

MEDIA_TYPE: Final = "text/event-stream"
KEEPALIVE_SECONDS: Final = 15.0  # after which a silent stream sends a comment, and looks whether it may go on
MAX_STREAMS: Final = 32  # of one user in one process
LAST_EVENT_ID: Final = "Last-Event-ID"  # header by which a client goes on where its stream broke off

_open: Counter[int] = Counter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """An event; without a name it is a comment, which clients ignore."""

    name: str = ""
    data: Any = None
    id: str = ""

    def encoded(self) -> bytes:
        """Return the lines of the event."""
        if not self.name:
            return b":\n\n"
        number = f"id: {self.id}\n" if self.id else ""
        data = json.dumps(self.data, cls=JSONEncoder, ensure_ascii=False, separators=(",", ":"))
        return f"{number}event: {self.name}\ndata: {data}\n\n".encode()


COMMENT: Final = ServerSentEvent()


class TooManyStreamsError(Throttled):
    """The user has MAX_STREAMS open."""

    default_detail = _("You have too many open streams; close one first.")
    extra_detail_singular = extra_detail_plural = ""


class EventStreamRenderer(BaseRenderer):
    """Makes the media type known to content negotiation; streams are not rendered by it."""

    media_type = MEDIA_TYPE
    format = "events"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return nothing."""
        return b""


def stream_response(
    user_id: int, events: AsyncGenerator[ServerSentEvent], is_allowed: Callable[[], Awaitable[bool]]
) -> StreamingHttpResponse:
    """Return the response that sends the events; it ends once the caller may no longer have them.

    Raises TooManyStreamsError.
    """
    if _open[user_id] >= MAX_STREAMS:
        raise TooManyStreamsError
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    content = _Content(user_id, events, is_allowed)
    return StreamingHttpResponse(content, content_type=MEDIA_TYPE, headers=headers)


class _Content:
    """The body of the response, which counts among the user's streams while it is sent."""

    def __init__(
        self, user_id: int, events: AsyncGenerator[ServerSentEvent], is_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._user_id = user_id
        self._events = events
        self._is_allowed = is_allowed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        _open[self._user_id] += 1
        try:
            await sync_to_async(connections.close_all)()  # the view's, which Django closes with the response only
            async for event in with_keepalive(self._events, self._is_allowed):
                yield event.encoded()
        finally:
            _open[self._user_id] -= 1
            if not _open[self._user_id]:
                del _open[self._user_id]


async def with_keepalive(
    events: AsyncGenerator[ServerSentEvent], is_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[ServerSentEvent]:
    """Yield the events, and a comment where there was none for KEEPALIVE_SECONDS; end once they are not allowed."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    following: asyncio.Future[ServerSentEvent] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events))
            await asyncio.wait({following}, timeout=KEEPALIVE_SECONDS)
            if loop.time() - checked_at >= KEEPALIVE_SECONDS:
                checked_at = loop.time()
                if not await _is_still_allowed(is_allowed):
                    return
            if not following.done():
                yield COMMENT
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield event
    finally:
        if following and not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await events.aclose()


async def _is_still_allowed(is_allowed: Callable[[], Awaitable[bool]]) -> bool:
    """Return whether the stream may go on; while the database is away, it may."""
    try:
        return await is_allowed()
    except Error:
        return True
