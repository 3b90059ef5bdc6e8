"""`make bench-api`: how long the web process takes for each endpoint of the API with 1,000 hosts and 10,000 sessions.

One client with a token asks for each in turn, over one connection on loopback, in rounds, so that what else the machine
does falls on all alike: `p95_ms`, and `ratio_to_plain_view`, its median against that of a view of the same framework
(token, rate limit, schema of errors) that returns a constant. Then eight clients at once ask for each: `rps`, responses
a second. The last line is one JSON object: {endpoint: {rps, p95_ms, ratio_to_plain_view}}, and of arrays the seconds
until 10,000 tasks are submitted, and cancelled.
"""

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from bench import array_requests
from bench.common import load
from bench.pages import HOST, close_if_dropped, running
from bench.sizes import size

CLIENTS: Final = 8
PLAIN: Final = "plain"
PART_OF_A_GPU: Final = {"cpu": 1, "memory": "2g", "fgpu": "0.5"}
ENDPOINTS: Final[dict[str, tuple[str, str, str, dict[str, Any] | None]]] = {  # name: who, verb, path, body
    PLAIN: ("user", "GET", "/bench/plain/", None),
    "me": ("user", "GET", "me/", None),
    "limits": ("user", "GET", "me/limits/", None),
    "sessions": ("user", "GET", "sessions/", None),
    "sessions_of_all": ("administrator", "GET", "sessions/", None),
    "sessions_search": ("administrator", "GET", "sessions/?search={name}", None),
    "session": ("user", "GET", "sessions/{session}/", None),
    "session_events": ("user", "GET", "sessions/{session}/events/", None),
    "session_stats": ("user", "GET", "sessions/{session}/stats/", None),
    "session_renamed": ("user", "PATCH", "sessions/{session}/", {"name": "{name}"}),
    "images": ("user", "GET", "images/", None),
    "presets": ("user", "GET", "presets/", None),
    "resource_groups": ("user", "GET", "resource-groups/", None),
    "hosts": ("administrator", "GET", "hosts/", None),
    "folders": ("user", "GET", "folders/", None),
    "notifications": ("user", "GET", "notifications/", None),
    "webhooks": ("user", "GET", "webhooks/", None),
    "tokens": ("user", "GET", "tokens/", None),
    "usage": ("administrator", "GET", "usage/", None),
    "estimate": ("user", "POST", "sessions/estimate/", {"image": "{image}", **PART_OF_A_GPU}),
    "launch": ("user", "POST", "sessions/", {"image": "{image}", **PART_OF_A_GPU}),
}


class ApiCaller:
    """One connection with a token, and one request that it repeats."""

    def __init__(self, port: int, token: str, verb: str, path: str, body: str | None) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        self._verb, self._path, self._body = verb, path, body

    def ask(self) -> float:
        """Return the milliseconds until the response is read. Raises RuntimeError for another than 2xx."""
        close_if_dropped(self._connection)
        begun = time.perf_counter()
        self._connection.request(self._verb, self._path, self._body, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status // 100 != http.HTTPStatus.OK // 100:
            raise RuntimeError(f"{self._verb} {self._path}: {response.status} {text[:300]!r}")
        return (time.perf_counter() - begun) * 1000


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(60, 2))
    parser.add_argument("--hosts", type=int, default=size(1_000, 10))
    parser.add_argument("--sessions", type=int, default=size(10_000, 100))
    parser.add_argument("--seconds", type=float, default=size(2, 0.05), help="that eight clients ask for each endpoint")
    options = parser.parse_args()
    settings = {"COMPUTE_API_REQUESTS_PER_MINUTE": "0"}
    with running("bench-api", options.hosts, options.sessions, **settings) as (port, made, _):
        figures = measure(port, made, options.rounds, options.seconds)
        figures["arrays"] = array_requests.measure(port, made, options.rounds)
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


def measure(port: int, made: Mapping[str, Any], rounds: int, seconds: float) -> dict[str, Any]:
    """Return the figures of each endpoint."""
    callers = {name: _caller(port, made, name) for name in ENDPOINTS}
    for caller in callers.values():  # the first response of each compiles what later ones find
        caller.ask()
    times: dict[str, list[float]] = {name: [] for name in ENDPOINTS}
    for _ in range(rounds):
        for name, caller in callers.items():
            times[name].append(caller.ask())
    least = statistics.median(times[PLAIN])
    return {
        name: {
            "rps": _rate(port, made, name, seconds),
            "p95_ms": round(statistics.quantiles(found, n=20)[-1], 1),
            "ratio_to_plain_view": round(statistics.median(found) / least, 2),
        }
        for name, found in times.items()
    }


def _rate(port: int, made: Mapping[str, Any], name: str, seconds: float) -> float:
    """Return how many responses a second CLIENTS get together."""
    until = time.monotonic() + seconds
    counts: list[int] = []

    def ask() -> None:
        caller, count = _caller(port, made, name), 0
        while time.monotonic() < until:
            caller.ask()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(counts) / seconds, 1)


def _caller(port: int, made: Mapping[str, Any], name: str) -> ApiCaller:
    who, verb, path, body = ENDPOINTS[name]
    path = path if path.startswith("/") else f"/api/v1/{path}"
    values = {key: value.format(**made) if isinstance(value, str) else value for key, value in (body or {}).items()}
    return ApiCaller(port, made["tokens"][who], verb, path.format(**made), json.dumps(values) if body else None)


if __name__ == "__main__":
    main()
