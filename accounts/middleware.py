"""Middleware of accounts."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin

from accounts import audit, logins


class RecordLogins(MiddlewareMixin):
    """Records every few minutes that a login session is in use, for its owner to see."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the login session of a request that has used it."""
        session = getattr(request, "session", None)
        if session is not None and session.accessed:
            logins.record_if_due(request)
        return response


@sync_and_async_middleware
def audit_origin(get_response: Any) -> Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]:
    """Let the audit log have by which interface and from which address administrative acts are done."""
    if iscoroutinefunction(get_response):

        async def serve_async(request: HttpRequest) -> HttpResponseBase:
            with audit.acts_from(request):
                response: HttpResponseBase = await get_response(request)
            return response

        return serve_async

    def serve(request: HttpRequest) -> HttpResponseBase:
        with audit.acts_from(request):
            response: HttpResponseBase = get_response(request)
        return response

    return serve
