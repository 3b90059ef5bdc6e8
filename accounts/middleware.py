"""Middleware of accounts."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from accounts import logins


class RecordLogins(MiddlewareMixin):
    """Records every few minutes that a login session is in use, for its owner to see."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the login session of a request that has used it."""
        session = getattr(request, "session", None)
        if session is not None and session.accessed:
            logins.record_if_due(request)
        return response
