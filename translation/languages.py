"""The language of a websocket, which no middleware of Django sees."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.translation import get_language_from_request


def language_of_scope(scope: Mapping[str, Any]) -> str:
    """Return the language of the page that opened a connection: by its cookie, else by its Accept-Language."""
    request = HttpRequest()
    request.COOKIES = dict(scope.get("cookies", {}))
    accepted = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"accept-language"]
    request.META["HTTP_ACCEPT_LANGUAGE"] = ",".join(accepted)
    return get_language_from_request(request)
