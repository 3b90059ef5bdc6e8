"""What can go wrong between a program and the platform."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx


class ClientError(Exception):
    """The base of all errors of this package; the text is for a person."""


class UnknownPlatformError(ClientError):
    """No address of a platform is known."""


class UnreachableServerError(ClientError):
    """No usable response came, although the request was repeated."""


class ApiError(ClientError):
    """The platform refused a request: the problem details (RFC 9457) of its response."""

    def __init__(
        self, status: int, message: str, errors: Mapping[str, Sequence[str]] | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.errors = {field: list(messages) for field, messages in (errors or {}).items()}

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"{name}: {text}" for name, texts in self.errors.items() for text in texts)])


class SignInRequiredError(ApiError):
    """401: there is no token, or it is not valid any more."""


class AccessDeniedError(ApiError):
    """403: the account or the scope of its token does not allow it."""


class MissingObjectError(ApiError):
    """404: it does not exist, or belongs to somebody else."""


class OverloadedError(ApiError):
    """429 or 503: the platform cannot serve it now; it may be repeated after `retry_after` seconds."""

    retry_after: float | None = None


BY_STATUS: Mapping[int, type[ApiError]] = {
    401: SignInRequiredError,
    403: AccessDeniedError,
    404: MissingObjectError,
    429: OverloadedError,
    503: OverloadedError,
}


def error_from(response: httpx.Response) -> ApiError:
    """Return the error that a response without success stands for; its body must have been read."""
    if response.has_redirect_location:
        return ApiError(response.status_code, _redirect_text(response))
    try:
        body: Any = response.json()
    except ValueError:
        body = {}
    problem: Mapping[str, Any] = body if isinstance(body, dict) else {}
    message = str(problem.get("detail") or problem.get("title") or f"{response.status_code} {response.reason_phrase}")
    fields = problem.get("errors")
    error = BY_STATUS.get(response.status_code, ApiError)(
        response.status_code, message, fields if isinstance(fields, dict) else None, str(problem.get("code", ""))
    )
    if isinstance(error, OverloadedError):
        error.retry_after = _seconds(response.headers.get("Retry-After"))
    return error


def no_api(response: httpx.Response) -> str:
    """Return the message for a successful response that is not of the platform's API."""
    return f"{response.request.url.host} gave no response of the platform's API; is this its address?"


def _redirect_text(response: httpx.Response) -> str:
    """Return the message for a redirect: who followed it would send the token to wherever it leads."""
    asked = response.request.url
    try:
        address = asked.join(response.headers["Location"])
    except httpx.InvalidURL:
        return f"{asked.host} redirects to an address that is none."
    shown = address.copy_with(query=None, fragment=None)
    return f"{asked.host} redirects to {shown}, which is not followed: give the platform's own address."


def _seconds(text: str | None) -> float | None:
    """Return the delay of a `Retry-After` in seconds; None where it is absent or a date (RFC 9110, 10.2.3)."""
    return float(text) if text and text.isdecimal() else None
