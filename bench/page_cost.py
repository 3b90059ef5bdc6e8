"""What a request costs the web process, which its response says in the header Server-Timing."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin


class ReportCost(MiddlewareMixin):
    """Says the milliseconds of CPU time of the thread, and the number of SQL statements."""

    def process_request(self, request: HttpRequest) -> None:
        """Begin to count."""
        request.statements = 0  # type: ignore[attr-defined]
        request.counting = ExitStack()  # type: ignore[attr-defined]

        def count(execute: Callable[..., Any], *arguments: Any) -> Any:
            request.statements += 1  # type: ignore[attr-defined]
            return execute(*arguments)

        request.counting.enter_context(connection.execute_wrapper(count))  # type: ignore[attr-defined]
        request.counted_from = time.thread_time()  # type: ignore[attr-defined]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Put the cost into the header."""
        milliseconds = (time.thread_time() - request.counted_from) * 1000  # type: ignore[attr-defined]
        request.counting.close()  # type: ignore[attr-defined]
        response["Server-Timing"] = f"cpu;dur={milliseconds:.1f}, statements;dur={request.statements}"  # type: ignore[attr-defined]
        return response
