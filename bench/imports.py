"""Starts of an imported repository against those of a plain session, each until JupyterLab is ready, in one run.

plain:  launch call sent -> RUNNING -> JupyterLab is opened -> ready
second: the same with a repository that was launched before: its files are fetched, its packages are there
first:  the same while its packages are still to be installed

`second_start_ratio` is the median over the rounds, each of which has one of both. Prints one JSON object as
its last line.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.common import SHAPE, ApiUser, load, timed
from bench.shared_platform import bench_platform
from bench.sizes import size
from tests.git_container import git_container
from tests.platform import Platform

EVERY_SECONDS = 0.05
TIMEOUT_SECONDS = 180


class Starter:
    """Launches sessions and opens JupyterLab in each."""

    def __init__(self, platform: Platform, address: str) -> None:
        self._platform, self._user = platform, ApiUser(platform)
        self._look = self._user.post("/imports/", {"address": address})["id"]
        self._until(lambda: self._state("id", self._look) == "DONE", "look")

    def plain(self) -> None:
        """Start a session."""
        self._open(self._user.submit())

    def imported(self) -> None:
        """Start a session with the repository."""
        body = {"image": self._user.image, **SHAPE}
        (session,) = self._user.post(f"/imports/{self._look}/launch/", body)
        self._until(lambda: self._state("session_id", session["id"]) == "DONE", "import")
        self._open(session["id"])

    def end(self) -> None:
        """End what runs, and return once it holds nothing."""
        self._platform.end_sessions()

    def _open(self, session: str) -> None:
        self._user.wait(session, "RUNNING")
        app = f"/sessions/{session}/apps/jupyterlab/"
        self._user.post(app, {})
        self._until(lambda: self._user.get(app)["state"] == "READY", "JupyterLab")

    def _state(self, column: str, value: str) -> str:
        (row,) = self._platform.rows(f"SELECT state, problem FROM imports_import WHERE {column} = %s", value)
        if row["problem"]:
            raise RuntimeError(row["problem"])
        return str(row["state"])

    def _until(self, is_so: Callable[[], bool], words: str) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{words} was not ready")
            time.sleep(EVERY_SECONDS)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(10, 1))
    rounds = parser.parse_args().rounds
    with bench_platform("bench-imports") as platform, git_container() as address:
        figures = measure(Starter(platform, address), rounds)
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(starter: Starter, rounds: int) -> dict[str, Any]:
    """Return the figures of one first start, and of `rounds` rounds with a plain and a second start each."""

    def taken(start: Callable[[], None]) -> float:
        value = timed(start)
        starter.end()
        sys.stderr.write(f"{start.__name__}: {value:.0f} ms\n")
        return value

    taken(starter.plain)  # warms up
    first = taken(starter.imported)
    pairs = [(taken(starter.plain), taken(starter.imported)) for _ in range(rounds)]
    plain, second = (statistics.median(values) for values in zip(*pairs, strict=True))
    figures = {"plain_ms": plain, "first_start_ms": first, "second_start_ms": second}
    return {
        **{name: round(value) for name, value in figures.items()},
        "first_start_ratio": round(first / plain, 2),
        "second_start_ratio": round(statistics.median(second / plain for plain, second in pairs), 2),
        "rounds": rounds,
        "load": load(),
    }


if __name__ == "__main__":
    main()
