"""Django's ASGI handler, with all middleware of a request in the thread of its view."""

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class OneThreadHandler(ASGIHandler):
    """Enters one thread for each request, where Django's own enters one for each step of each middleware.

    Views that are coroutines run in the event loop meanwhile, and the bodies of streams are read there, as ever.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        """Make the chain of middleware one of plain calls."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response, made in the thread of this request."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)
