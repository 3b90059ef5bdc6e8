"""Responses to requests that the platform cannot serve at present, made without the database."""

import sys
from types import SimpleNamespace
from typing import Any, Final

from django.contrib.auth.models import AnonymousUser
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.translation import gettext

from restapi.problems import MEDIA_TYPE, problem_text

RETRY_SECONDS: Final = 3
API: Final = "/api/"


def unavailable(path: str, reason: str, request: HttpRequest | None = None) -> HttpResponse:
    """Return 503 with Retry-After and the reason: JSON in the API, else a page that loads itself again."""
    headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
    if path.startswith(API):
        return _problem(503, reason, headers)
    page = _page("503.html", request, reason=reason, retry_seconds=RETRY_SECONDS)
    response = HttpResponse(page, status=503, headers=headers)
    response["Content-Length"] = str(len(response.content))
    return response


def database_away(path: str, request: HttpRequest | None = None) -> HttpResponse:
    """Return the response to a request while the database is away."""
    return unavailable(path, gettext("The database does not answer at present."), request)


def handle_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an unhandled exception: 503 while the database is away, else 500; for `handler500`."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return database_away(request.path, request)
    if request.path.startswith(API):
        return _problem(500, gettext("An error occurred and was logged."))
    return HttpResponse(_page("500.html", request), status=500)


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> HttpResponse:
    return HttpResponse(problem_text(status, detail), status=status, content_type=MEDIA_TYPE, headers=headers)


def _page(name: str, request: HttpRequest | None, **context: Any) -> str:
    """Return a page as for a stranger: it has the request's nonce, and nothing that asks the database."""
    stranger = SimpleNamespace(user=AnonymousUser(), csp_nonce=getattr(request, "csp_nonce", ""))
    return loader.get_template(name).render({"request": stranger, **context})
