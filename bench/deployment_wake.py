"""How long requests wait for a deployment that sleeps with one replica parked, by the time that a resume takes.

Each round sends COLD requests at once to a deployment that has fallen asleep, and divides their median by the time
from the queue until the session's container ran, in the same wake.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import requests

from bench.common import ApiUser
from bench.shared_platform import bench_platform
from bench.sizes import size
from tests.platform import Platform

COLD: Final = 100
ROUNDS: Final = size(5, 1)
WAIT_SECONDS: Final = 120
POLL_SECONDS: Final = 0.05
COMMAND: Final = (
    "exec python3 -c 'import http.server as h; h.ThreadingHTTPServer.request_queue_size = 128;"
    " h.test(h.SimpleHTTPRequestHandler, h.ThreadingHTTPServer, port=8000)'"
)
MOVES: Final = """
SELECT new_status, at FROM compute_sessionevent WHERE session_id = %s AND at >= %s AND old_status <> '' ORDER BY id
"""
PARKED: Final = """
SELECT s.id, now() AS at FROM compute_session s JOIN deployments_replica r ON r.session_id = s.id
WHERE r.deployment_id = %s AND s.status IN ('PARKED')
"""


def wake_figures() -> dict[str, float]:
    """Return `wake_ratio`, and the medians of what it divides, in seconds."""
    with bench_platform("bench-deployment-wake") as platform:
        user = ApiUser(platform)
        made = user.post("/deployments/", _request(user.image))
        path = f"/deployments/{made['id']}/"
        try:
            user.patch(f"{path}scaling/", {"max_replicas": 1, "wake_seconds": WAIT_SECONDS})
            headers = {
                "Host": made["url"].partition("//")[2],
                "Authorization": f"Bearer {user.post(f'{path}tokens/', {'name': 'bench'})['secret']}",
            }
            rounds = [_round(platform, user, path, made["id"], headers) for _ in range(ROUNDS)]
        finally:
            user.post(f"{path}end/", {})
            user.close()
    waited, resumed = (statistics.median(values) for values in zip(*rounds, strict=True))
    ratio = statistics.median(one / other for one, other in rounds)
    return {"wake_ratio": round(ratio, 2), "wake_p50_s": round(waited, 2), "resume_s": round(resumed, 2)}


def _request(image: str) -> dict[str, Any]:
    health = {"kind": "http", "path": "/", "interval_seconds": 1, "timeout_seconds": 1}
    amounts = {"cpu": 1, "memory": "256MiB", "fgpu": "0"}
    return {"name": "wake", "image": image, "command": COMMAND, "port": 8000, "health": health, **amounts}


def _round(
    platform: Platform, user: ApiUser, path: str, deployment: str, headers: dict[str, str]
) -> tuple[float, float]:
    """Return how long the median request waited, and how long the resume took, in seconds."""
    _until(lambda: user.get(path)["state"] == "HEALTHY")
    user.post(f"{path}sleep/", {})
    _until(lambda: user.get(path)["state"] == "ASLEEP" and platform.rows(PARKED, deployment))
    [parked] = platform.rows(PARKED, deployment)
    with ThreadPoolExecutor(COLD) as pool:
        answers = list(
            pool.map(lambda _: requests.get(platform.url, headers=headers, timeout=WAIT_SECONDS), range(COLD))
        )
    if any(answer.status_code != requests.codes.ok for answer in answers):
        raise RuntimeError(f"answered {sorted({answer.status_code for answer in answers})}")
    reached = {move["new_status"]: move["at"] for move in platform.rows(MOVES, parked["id"], parked["at"])}
    resumed = (reached["RUNNING"] - reached["PENDING"]).total_seconds()
    return statistics.median(answer.elapsed.total_seconds() for answer in answers), resumed


def _until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the deployment did not get there")
        time.sleep(POLL_SECONDS)
