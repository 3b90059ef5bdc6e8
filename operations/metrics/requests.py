"""Counts requests, measures and logs them. For Prometheus: per process, or for all processes that share a folder.

prometheus_client decides which when it is imported: it shares the folder PROMETHEUS_MULTIPROC_DIR where that is set
(`gpuplatform.serving.web_server`). https://prometheus.github.io/client_python/multiprocess/
"""

import logging
import os
import time
from typing import Final

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from operations.logs import lines as log_lines
from operations.metrics.admission import report_of

logger = logging.getLogger(__name__)

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds

SECONDS: Final = Histogram(
    "gpuplatform_http_request_seconds",
    "Time from a request until the beginning of its response, by the name of its URL pattern",
    ("method", "view", "status"),
    buckets=BUCKETS,
)
REFUSALS: Final = (401, 403, 429)  # statuses that are logged in any case
REFUSED: Final = Counter("gpuplatform_http_requests_refused", "Requests answered with 503 because of overload")


class MeasureRequests(MiddlewareMixin):
    """Records how long each request took; what matches no URL is one view, whatever strangers ask for."""

    def process_request(self, request: HttpRequest) -> None:
        """Note when the request began, and have its log lines name its user and session once they are known."""
        request.began_at = time.perf_counter()  # type: ignore[attr-defined]
        request.thread_began_at = time.thread_time()  # type: ignore[attr-defined]
        if context := log_lines.current():
            context.request = request

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the request; log it where that is wanted or it was refused, without the query, which people type."""
        match = request.resolver_match
        view = match.view_name if match else "none"
        method = request.method if request.method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "other"
        took = time.perf_counter() - request.began_at  # type: ignore[attr-defined]
        report = report_of(request)
        report.is_known, report.user_id = True, log_lines.user_of(request)
        report.thread_seconds = time.thread_time() - request.thread_began_at  # type: ignore[attr-defined]
        SECONDS.labels(method, view, f"{response.status_code // 100}xx").observe(took)
        if settings.COMPUTE_LOG_REQUESTS or response.status_code in REFUSALS:
            facts = {"method": method, "view": view, "status": response.status_code, "duration_ms": round(took * 1000)}
            more = {"fields": facts}
            logger.info("%s %s: %d in %.0f ms", method, request.path, response.status_code, took * 1000, extra=more)
        return response


def request_registry() -> CollectorRegistry:
    """Return where the figures of all processes of this server are collected."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
