"""Middleware of the platform."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from asgiref.sync import sync_to_async
from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

NUL: Final = "%00"  # percent-encoded
BLOCKS_AT_ONCE: Final = 16  # of Django's 4 KiB


class NoNulInAdmin(MiddlewareMixin):
    """Responds 400 to admin URLs that contain NUL.

    Django's admin would pass it to PostgreSQL, which refuses it with an error. Other pages and the API validate their
    parameters themselves.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Raise BadRequest if the URL of an admin page contains NUL."""
        if request.path.startswith(reverse("admin:index")) and (
            "\0" in request.path or NUL in request.META["QUERY_STRING"]
        ):
            raise BadRequest("The address contains a NUL character.")


class StreamsInThreads(MiddlewareMixin):
    """Has what a response streams read in threads, part by part, where the server is an ASGI one.

    Django would read all of a file, such as a static one, into memory first, and warn of it.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response, which is asynchronous then."""
        if isinstance(request, ASGIRequest) and isinstance(response, StreamingHttpResponse) and not response.is_async:
            response.streaming_content = _read_in_threads(iter(response))
        return response


async def _read_in_threads(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while read := await sync_to_async(lambda: list(islice(blocks, BLOCKS_AT_ONCE)), thread_sensitive=False)():
        yield b"".join(read)
