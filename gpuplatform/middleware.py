"""Middleware of the platform."""

from typing import Final

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

NUL: Final = "%00"  # percent-encoded


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
