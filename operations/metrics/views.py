"""`/metrics` for Prometheus, to whom the settings let in; 404 to all others."""

import hmac
from ipaddress import ip_address, ip_network

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from operations.metrics.requests import request_registry
from operations.metrics.state import state_registry


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics in Prometheus' text format."""
    if not may_read(request):
        raise Http404
    parts = (generate_latest(state_registry()), generate_latest(request_registry()))
    return HttpResponse(b"".join(parts), content_type=CONTENT_TYPE_LATEST)


def may_read(request: HttpRequest) -> bool:
    """Return whether the request comes from a monitoring system that the settings let in."""
    return _has_token(request) or _is_from_network(request)


def _has_token(request: HttpRequest) -> bool:
    """Return whether the request carries the token of the settings, as a bearer token (RFC 6750)."""
    token: str = settings.COMPUTE_METRICS_TOKEN
    sent = request.headers.get("Authorization", "")
    return bool(token) and hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())


def _is_from_network(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:  # a Unix socket
        return False
    return any(address in ip_network(network) for network in settings.COMPUTE_METRICS_NETWORKS)
