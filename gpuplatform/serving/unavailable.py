"""Responses to requests that the platform cannot serve at present, made without the database."""

import sys
from enum import StrEnum
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
SAFE_METHODS: Final = ("GET", "HEAD")


class Retry(StrEnum):
    """How a page that could not be served comes back."""

    LOAD = "load"  # by loading its address again
    SEND = "send"  # by sending its form again, which the page has
    BY_HAND = "by hand"


def unavailable(
    path: str,
    reason: str,
    request: HttpRequest | None = None,
    *,
    retry: Retry = Retry.LOAD,
    retry_seconds: int = RETRY_SECONDS,
) -> HttpResponse:
    """Return 503 with Retry-After and the reason: JSON in the API, else a page that has the request sent again."""
    headers = {"Retry-After": str(retry_seconds), "Cache-Control": "no-store"}
    if path.startswith(API):
        return _problem(503, reason, headers)
    page = _page("503.html", request, reason=reason, retry=retry, retry_seconds=retry_seconds)
    response = HttpResponse(page, status=503, headers=headers)
    response["Content-Length"] = str(len(response.content))
    return response


def database_away(path: str, request: HttpRequest | None = None, **options: Any) -> HttpResponse:
    """Return the response to a request while the database is away; `options` as of `unavailable`."""
    return unavailable(path, gettext("The database does not answer at present."), request, **options)


def handle_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an unhandled exception: 503 while the database is away, else 500; for `handler500`."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        retry = Retry.LOAD if request.method in SAFE_METHODS else Retry.BY_HAND
        return database_away(request.path, request, retry=retry)
    if request.path.startswith(API):
        return _problem(500, gettext("An error occurred and was logged."))
    return HttpResponse(_page("500.html", request), status=500)


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> HttpResponse:
    return HttpResponse(problem_text(status, detail), status=status, content_type=MEDIA_TYPE, headers=headers)


def _page(name: str, request: HttpRequest | None, **context: Any) -> str:
    """Return a page as for a stranger: it has the request's nonce, and nothing that asks the database."""
    stranger = SimpleNamespace(user=AnonymousUser(), csp_nonce=getattr(request, "csp_nonce", ""))
    return loader.get_template(name).render({"request": stranger, **context})
