"""How long requests wait for a deployment that sleeps with one replica parked, by the time that a resume takes.

Each round sends COLD requests at once to a deployment that has fallen asleep, and divides their median by the time
from the queue until the session's container ran, in the same wake. Then it wakes it once more by the API, with no
request held, and asks the container itself: what a session takes from the queue until its server has answered, whose
own start the requests wait for too. `python -m bench.deployment_wake` measures this alone, and prints each round.
"""

import json
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
ANSWER_POLL_SECONDS: Final = 0.005
PORT: Final = 8000
COMMAND: Final = (
    "exec python3 -c 'import http.server as h; h.ThreadingHTTPServer.request_queue_size = 128;"
    f" h.test(h.SimpleHTTPRequestHandler, h.ThreadingHTTPServer, port={PORT})'"
)
MOVES: Final = """
SELECT new_status, at FROM compute_sessionevent WHERE session_id = %s AND at >= %s AND old_status <> '' ORDER BY id
"""
PARKED: Final = """
SELECT s.id, now() AS at FROM compute_session s JOIN deployments_replica r ON r.session_id = s.id
WHERE r.deployment_id = %s AND s.status IN ('PARKED')
"""


HEALTHY: Final = """
SELECT r.healthy_at, e.at AS woken_at FROM deployments_replica r
JOIN deployments_deploymentevent e ON e.deployment_id = r.deployment_id AND e.what LIKE 'A request wakes it%%'
WHERE r.session_id = %s ORDER BY e.at DESC LIMIT 1
"""
RUNNING: Final = "SELECT host(address) AS address FROM compute_session WHERE id = %s AND status = 'RUNNING'"


def wake_figures() -> dict[str, Any]:
    """Return `wake_ratio`, the medians of what it divides, and what a server without a proxy takes, in seconds.

    `wake_parts_s` says when each step was reached, in seconds since the first request was sent.
    """
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
            rounds = [
                (*_round(platform, user, path, made["id"], headers), _alone(platform, user, path, made["id"]))
                for _ in range(ROUNDS)
            ]
        finally:
            user.post(f"{path}end/", {})
            user.close()
    waits, resumes, parts, response_times = zip(*rounds, strict=True)
    return {
        "wake_ratio": _median(one / other for one, other in zip(waits, resumes, strict=True)),
        "wake_p50_s": _median(waits),
        "resume_s": _median(resumes),
        "resume_to_answer_s": _median(response_times),
        "wake_parts_s": {name: _median(each[name] for each in parts) for name in parts[0]},
    }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


def _request(image: str) -> dict[str, Any]:
    health = {"kind": "http", "path": "/", "interval_seconds": 1, "timeout_seconds": 1}
    amounts = {"cpu": 1, "memory": "256MiB", "fgpu": "0"}
    return {"name": "wake", "image": image, "command": COMMAND, "port": PORT, "health": health, **amounts}


def _round(
    platform: Platform, user: ApiUser, path: str, deployment: str, headers: dict[str, str]
) -> tuple[float, float, dict[str, float]]:
    """Return how long the median request waited, how long the resume took, and when each step was reached."""
    parked = _asleep(platform, user, path, deployment)
    begun_at = time.time()
    with ThreadPoolExecutor(COLD) as pool:
        found = list(pool.map(lambda _: _ask(platform.url, headers), range(COLD)))
    waited, ended_at = (statistics.median(values) for values in zip(*found, strict=True))
    [of_replica] = platform.rows(HEALTHY, parked["id"])
    reached = _reached(platform, parked)
    steps = {"woken": of_replica["woken_at"], **reached, "healthy": of_replica["healthy_at"]}
    parts = {name.lower(): at.timestamp() - begun_at for name, at in steps.items()}
    parts |= {"first_answer": min(at for _, at in found) - begun_at, "median_answer": ended_at - begun_at}
    print({name: round(seconds, 3) for name, seconds in parts.items()}, flush=True)
    return waited, (reached["RUNNING"] - reached["PENDING"]).total_seconds(), parts


def _ask(url: str, headers: dict[str, str]) -> tuple[float, float]:
    """Return how long a request waited for its response, in seconds, and at which Unix time that came."""
    answer = requests.get(url, headers=headers, timeout=WAIT_SECONDS)
    answer.raise_for_status()
    return answer.elapsed.total_seconds(), time.time()


def _alone(platform: Platform, user: ApiUser, path: str, deployment: str) -> float:
    """Return the seconds from the queue until the server in the container has answered, without any proxy."""
    parked = _asleep(platform, user, path, deployment)
    user.post(f"{path}wake/", {})
    _until(lambda: _responds(platform, parked["id"]), ANSWER_POLL_SECONDS)
    answered_at = time.time()
    return answered_at - float(_reached(platform, parked)["PENDING"].timestamp())


def _responds(platform: Platform, session: str) -> bool:
    """Return whether the session's container sends the first byte of a response."""
    for row in platform.rows(RUNNING, session):
        with suppress(OSError), socket.create_connection((row["address"], PORT), WAIT_SECONDS) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return bool(connection.recv(1))
    return False


def _asleep(platform: Platform, user: ApiUser, path: str, deployment: str) -> dict[str, Any]:
    """Return the session of the deployment that is parked, and when it was found so; it is sent to sleep for that."""
    _until(lambda: user.get(path)["state"] == "HEALTHY")
    user.post(f"{path}sleep/", {})
    _until(lambda: user.get(path)["state"] == "ASLEEP" and platform.rows(PARKED, deployment))
    [parked] = platform.rows(PARKED, deployment)
    return parked


def _reached(platform: Platform, parked: dict[str, Any]) -> dict[str, Any]:
    return {move["new_status"]: move["at"] for move in platform.rows(MOVES, parked["id"], parked["at"])}


def _until(is_so: Callable[[], Any], poll_seconds: float = POLL_SECONDS) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the deployment did not get there")
        time.sleep(poll_seconds)


if __name__ == "__main__":
    print(json.dumps(wake_figures()))
