"""Middleware of accounts."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, Final

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from accounts import audit
from accounts.login_sessions import services as logins
from accounts.second_factors import demand as demanded_factors

OPEN_PATHS: Final = (  # while a second factor is due
    *("/accounts/second-factor/", "/accounts/confirm/", "/accounts/sign-out/", "/accounts/language/"),
    *("/accounts/password/", "/healthz", "/readyz"),
)


class RecordLogins(MiddlewareMixin):
    """Records every few minutes that a login session is in use, for its owner to see; its pages are not stored."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the login session of a request that has used it; the response is not stored, unless it says how."""
        session = getattr(request, "session", None)
        if session is not None and session.accessed:
            logins.record_if_due(request)
            if SESSION_KEY in session:
                response.setdefault("Cache-Control", "no-store")
        return response


class DemandSecondFactor(MiddlewareMixin):
    """Leads who must set up a second factor to the page of that, whatever they ask for."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return a redirect, for the API problem details, where a second factor is due; else None."""
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path.startswith(OPEN_PATHS):
            return None
        if not demanded_factors.is_due(request):
            return None
        if not request.path.startswith(audit.API_PREFIX):
            return redirect("mfa_index")
        text = _("Your policy demands a second factor: set one up on the page of your account first.")
        return JsonResponse(
            {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": text, "code": "second_factor_due"},
            status=403,
            content_type="application/problem+json",
        )


class SocketsWithFactors:
    """Leaves websockets of who must set up a second factor without a user; runs inside of Channels' authentication."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve the websocket."""
        if await database_sync_to_async(scope["session"].get)(demanded_factors.DUE):
            scope = {**scope, "user": AnonymousUser()}
        await self._app(scope, receive, send)


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
