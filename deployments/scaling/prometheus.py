"""Asks Prometheus for the results of rules' queries. Both its address and the queries are the administrator's alone.

A result holds for some seconds, for all processes, and so does that there was none: a server that hangs holds up one
look in several.
"""

import http.client
import json
import logging
import math
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from django.conf import settings

from sessions.notify import proxies_redis

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 2.0  # for all queries of one look together
RESULT_SECONDS: Final = 10
MAX_BYTES: Final = 64 * 1024
MAX_THREADS: Final = 8
UNKNOWN: Final = b"unknown"


class PrometheusError(Exception):
    """The query has no result that is one number."""


def results(queries: Collection[str]) -> dict[str, float | None]:
    """Return the result of each query; None where it is unknown. Takes TIMEOUT_SECONDS at most. Raises RedisError."""
    wanted = sorted(set(queries))
    if not wanted or not settings.COMPUTE_PROMETHEUS_URL:
        return dict.fromkeys(wanted)
    stored = dict(zip(wanted, proxies_redis().mget([_key(query) for query in wanted]), strict=True))
    asked = _ask_all([query for query, result in stored.items() if result is None])
    with proxies_redis().pipeline(transaction=False) as pipeline:
        for query, result in asked.items():
            pipeline.set(_key(query), UNKNOWN if result is None else repr(result), ex=RESULT_SECONDS)
        pipeline.execute()
    known = {query: float(result) for query, result in stored.items() if result not in (None, UNKNOWN)}
    return {query: known.get(query, asked.get(query)) for query in wanted}


def ask(query: str) -> float:
    """Return the result of the query: a scalar, or a vector of one element. Raises PrometheusError, OSError."""
    address = urlsplit(settings.COMPUTE_PROMETHEUS_URL)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=TIMEOUT_SECONDS)
    try:
        body = urlencode({"query": query, "timeout": f"{TIMEOUT_SECONDS}s"})
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        connection.request("POST", f"{address.path.rstrip('/')}/api/v1/query", body, headers)
        content = connection.getresponse().read(MAX_BYTES + 1)
    except http.client.HTTPException as error:
        raise PrometheusError(f"it answers no HTTP: {error!r}") from error
    finally:
        connection.close()
    if len(content) > MAX_BYTES:
        raise PrometheusError(f"its response has more than {MAX_BYTES} bytes")
    return number_in(content)


def number_in(content: bytes) -> float:
    """Return the number in a response of Prometheus. Raises PrometheusError where it has none, or several."""
    try:
        response: Any = json.loads(content)
        if response["status"] != "success":
            raise PrometheusError(str(response.get("error", "the query failed"))[:200])
        kind, result = response["data"]["resultType"], response["data"]["result"]
        if kind == "vector":
            [element] = result
            result = element["value"]
        elif kind != "scalar":
            raise PrometheusError(f"its result is a {kind}, not a number")
        number = float(result[1])
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise PrometheusError("its result is not one number") from error
    if not math.isfinite(number) or number < 0:
        raise PrometheusError(f"its result is {number}")
    return number


def _ask_all(queries: Collection[str]) -> dict[str, float | None]:
    if not queries:
        return {}
    pool = ThreadPoolExecutor(max_workers=MAX_THREADS, thread_name_prefix="prometheus")
    asked = {query: pool.submit(ask, query) for query in queries}
    wait(asked.values(), TIMEOUT_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    found: dict[str, float | None] = {}
    for query, future in asked.items():
        error = future.exception() if future.done() and not future.cancelled() else TimeoutError("no answer in time")
        if error:
            logger.info("the query %s has no result: %s", query, error)
        found[query] = None if error else future.result()
    return found


def _key(query: str) -> str:
    return f"gp.scaling.query:{sha256(query.encode()).hexdigest()}"
