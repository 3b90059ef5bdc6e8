"""What every request passes beside Django's own middleware."""

from typing import Final

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

NUL: Final = "%00"  # as it stands in a query


class NoNulInAdmin(MiddlewareMixin):
    """Answers 400 where an address of the administration holds a NUL.

    Django's admin searches for whatever it is given, and PostgreSQL has no such character. Our own pages and the API
    look at their parameters themselves.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Raise BadRequest, or let the request pass."""
        if request.path.startswith(reverse("admin:index")) and (
            "\0" in request.path or NUL in request.META["QUERY_STRING"]
        ):
            raise BadRequest("The address holds a NUL character.")
