"""Arrays, as `make bench-api` measures them: submitted and cancelled with many tasks, and listed."""

import json
import statistics
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, Final

from bench.pages import HOST
from bench.sizes import size

TASKS: Final = size(10_000, 100)
ARRAYS: Final = size(20, 2)  # in the list


def measure(port: int, made: Mapping[str, Any], rounds: int) -> dict[str, float]:
    """Return seconds until an array of so many tasks is submitted and cancelled, and milliseconds of a list of some."""
    connection = HTTPConnection(HOST, port, timeout=60)
    headers = {"Authorization": f"Token {made['tokens']['user']}", "Content-Type": "application/json"}

    def ask(verb: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[float, Any]:
        begun = time.perf_counter()
        connection.request(verb, f"/api/v1/{path}", json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        text = response.read()
        if response.status not in (200, 201):
            raise RuntimeError(f"{verb} {path}: {response.status} {text[:300]!r}")
        return time.perf_counter() - begun, json.loads(text)

    def submit(name: str, tasks: int) -> tuple[float, str]:
        space = {"grid": {"lr": [0.1, 0.01], "seed": {"from": 1, "to": tasks // 2}}}
        asked = {"image": made["image"], "cpu": 1, "memory": "2g", "fgpu": "0.5", "command": "train", "name": name}
        seconds, array = ask("POST", "arrays/", asked | {"tasks": space, "max_parallel": 4})
        return seconds, array["id"]

    submitted = [submit(f"sweep-{number}", TASKS) for number in range(3)]
    for number in range(ARRAYS):
        submit(f"small-{number}", 2)
    listed = [ask("GET", "arrays/")[0] * 1000 for _ in range(max(rounds, 2))]
    cancelled = [ask("POST", f"arrays/{array}/cancel/", {})[0] for _, array in submitted]
    return {
        "submit_10000_seconds": round(statistics.median(seconds for seconds, _ in submitted), 3),
        "list_p95_ms": round(statistics.quantiles(listed, n=20)[-1], 1),
        "cancel_10000_seconds": round(statistics.median(cancelled), 3),
    }
