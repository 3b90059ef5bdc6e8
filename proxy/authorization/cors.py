"""Cross-origin requests for a service: which pages of other origins may send them and read the responses.

A service's owner names the origins. A preflight is answered here, for the replicas never see one, and what a replica
itself says of other origins is dropped. No cookie is sent or read across origins, so a token is what opens a service
that is not public. See https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

import re
from typing import Final

from proxy.authorization.request_checks import has_body
from proxy.http import responses
from proxy.http.headers import ClassifiedHeaders, Header, MalformedRequestError, RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Service
from proxy.site import Site

ANY_ORIGIN: Final = "*"
REQUEST_METHOD: Final = b"access-control-request-method"
REQUEST_HEADERS: Final = b"access-control-request-headers"
METHODS: Final = (b"Access-Control-Allow-Methods", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
MAX_AGE: Final = (b"Access-Control-Max-Age", b"600")
EXPOSED: Final = (b"Access-Control-Expose-Headers", ANY_ORIGIN.encode())
VARY: Final = (b"Vary", b"Origin")
VARY_PREFLIGHT: Final = (b"Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
MAX_REQUEST_HEADERS_BYTES: Final = 4096
_NAMES: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_NOT_ALLOWED: Final = "Pages of this origin may not use the deployment; its owner can allow them."


def foreign_origin(known: dict[bytes, bytes], scheme: bytes) -> bytes:
    """Return the origin of the page that sends a request, b"" for a page of the same origin and for programs."""
    origin = known.get(b"origin", b"").lower()
    return b"" if not origin or origin == scheme + b"://" + known[b"host"].lower() else origin


def is_allowed(origin: bytes, service: Service) -> bool:
    """Return whether the owner lets pages of this origin use the service."""
    return ANY_ORIGIN in service.allowed_origins or origin.decode("latin-1") in service.allowed_origins


def may_read(origin: bytes, service: Service, site: Site, *, has_token: bool) -> bool:
    """Return whether a page of this origin may read the response; the platform's own may with a token."""
    return is_allowed(origin, service) or (has_token and origin == site.platform_url.lower().encode())


def is_preflight(request: RequestHead, known: dict[bytes, bytes]) -> bool:
    """Return whether a browser asks what a page of another origin may send."""
    return request.method == b"OPTIONS" and REQUEST_METHOD in known


def preflight(classified: ClassifiedHeaders, service: Service, origin: bytes, site: Site) -> LocalResponse:
    """Answer a preflight. Raises MalformedRequestError where it does not ask for names of headers."""
    closes, known = has_body(classified), classified.known
    if not may_read(origin, service, site, has_token=True):
        return responses.text(403, _NOT_ALLOWED, VARY_PREFLIGHT, closes=closes)
    headers = [_allow(origin, service), METHODS, MAX_AGE, VARY_PREFLIGHT]
    if asked := known.get(REQUEST_HEADERS, b""):
        if len(asked) > MAX_REQUEST_HEADERS_BYTES or not _NAMES.fullmatch(asked):
            raise MalformedRequestError("Access-Control-Request-Headers is no list of names")
        headers.append((b"Access-Control-Allow-Headers", asked))
    return LocalResponse(status=204, headers=headers, closes=closes)


def response_headers(service: Service, origin: bytes, site: Site, *, has_token: bool) -> tuple[Header, ...]:
    """Return what the response to a request from this origin says of it; b"": the request is from no other origin."""
    if origin and may_read(origin, service, site, has_token=has_token):
        return _allow(origin, service), EXPOSED, VARY
    return (VARY,) if origin or service.allowed_origins else ()


def _allow(origin: bytes, service: Service) -> Header:
    value = ANY_ORIGIN.encode() if ANY_ORIGIN in service.allowed_origins else origin
    return b"Access-Control-Allow-Origin", value
