"""Counts requests and measures them, for Prometheus: per process, or for all processes that share a folder.

prometheus_client decides which when it is imported: it shares the folder PROMETHEUS_MULTIPROC_DIR where that is set
(`gpuplatform.web_server`). https://prometheus.github.io/client_python/multiprocess/
"""

import os
import time
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds

SECONDS: Final = Histogram(
    "gpuplatform_http_request_seconds",
    "Time from a request until the beginning of its response, by the name of its URL pattern",
    ("method", "view", "status"),
    buckets=BUCKETS,
)
REFUSED: Final = Counter("gpuplatform_http_requests_refused", "Requests answered with 503 because of overload")


class MeasureRequests(MiddlewareMixin):
    """Records how long each request took; what matches no URL is one view, whatever strangers ask for."""

    def process_request(self, request: HttpRequest) -> None:
        """Note when the request began."""
        request.began_at = time.perf_counter()  # type: ignore[attr-defined]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the request."""
        match = request.resolver_match
        view = match.view_name if match else "none"
        method = request.method if request.method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "other"
        took = time.perf_counter() - request.began_at  # type: ignore[attr-defined]
        SECONDS.labels(method, view, f"{response.status_code // 100}xx").observe(took)
        return response


def request_registry() -> CollectorRegistry:
    """Return where the figures of all processes of this server are collected."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
