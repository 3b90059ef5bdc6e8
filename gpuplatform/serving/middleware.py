"""Middleware of the platform."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Final

from asgiref.sync import sync_to_async
from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from whitenoise.middleware import WhiteNoiseMiddleware

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


class StaticFilesOfVersions(WhiteNoiseMiddleware):  # type: ignore[misc]  # it has no types
    """Serves static files, those too that were collected since this process started, where WhiteNoise looks once.

    Pages of the next version, which another process has rendered in an upgrade, ask for them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self.directories = [(os.path.join(os.path.abspath(self.static_root), ""), self.static_prefix)]

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve a static file, or have the request handled."""
        url = request.path_info
        is_unknown = not self.autorefresh and url.startswith(self.static_prefix) and url not in self.files
        if is_unknown and (found := self.find_file(url)):
            self.files[url] = found
        response: HttpResponseBase
        try:
            response = super().__call__(request)
        except FileNotFoundError:
            if self.files.pop(url, None) is None:
                raise
            # It was of an older version than that before the one which was collected last.
            response = self.get_response(request)
        return response


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
