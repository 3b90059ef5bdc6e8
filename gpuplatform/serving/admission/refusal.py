"""Responses to requests that get no slot: 503 with a time to wait, and with what a form had, to be sent again."""

import functools
import secrets
from typing import Final
from urllib.parse import parse_qsl

from django.http import HttpResponse
from django.utils.html import format_html_join
from django.utils.translation import get_language, gettext

from gpuplatform.serving.same_origin import is_same_origin
from gpuplatform.serving.unavailable import API, SAFE_METHODS, Retry, database_away, unavailable
from proxy.http.asgi import Scope, Send

POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"  # middleware does not see this page
RETRY_SECONDS: Final = range(2, 8)  # drawn by chance, so that clients refused together do not return together
FORM_BYTES: Final = 64 * 1024  # of a form that is sent back with the page
FORM_FIELDS: Final = 200
FORM_TYPE: Final = b"application/x-www-form-urlencoded"
SECRETS: Final = ("password", "code")  # in the names of fields that are not sent back
PLACE: Final = "<!-- fields -->"


def refusal(scope: Scope, body: bytes, *, is_silent: bool) -> HttpResponse:
    """Return 503, which says that the server is busy, or that its database is silent."""
    is_api = scope["path"].startswith(API)
    fields, retry = "", Retry.LOAD
    if scope["method"] not in SAFE_METHODS and not is_api:
        fields = _fields(scope, body)
        retry = Retry.SEND if fields else Retry.BY_HAND
    headers, content = _rendered(is_api, is_silent, retry, secrets.choice(RETRY_SECONDS), get_language())
    return HttpResponse(content.replace(PLACE, fields), status=503, headers=headers)


async def send_response(response: HttpResponse, send: Send) -> None:
    """Send a response that Django has not worked on."""
    headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
    headers.append((b"content-length", b"%d" % len(response.content)))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


@functools.cache
def _rendered(
    is_api: bool, is_silent: bool, retry: Retry, retry_seconds: int, _language: str
) -> tuple[dict[str, str], str]:
    """Return headers and content, rendered once: rendering costs more than all else of a refusal."""
    path = API if is_api else "/"
    if is_silent:
        response = database_away(path, retry=retry, retry_seconds=retry_seconds)
    else:
        response = unavailable(path, gettext("The server is busy."), retry=retry, retry_seconds=retry_seconds)
    headers = {name: value for name, value in response.items() if name != "Content-Length"}
    return headers | {"Content-Security-Policy": POLICY}, response.content.decode()


def _fields(scope: Scope, body: bytes) -> str:
    """Return the form's fields as hidden ones; nothing where it is no plain form of ours, is large, or has secrets."""
    content_type = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if content_type != FORM_TYPE or len(body) > FORM_BYTES or not is_same_origin(scope):
        return ""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS, errors="strict")
    except ValueError:
        return ""
    if any(secret in name.lower() for name, _ in pairs for secret in SECRETS):
        return ""
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', pairs)
