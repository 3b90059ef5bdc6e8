"""Imports of repositories of ten shapes and one more, and starts with them against those of a plain session.

A start is measured until JupyterLab is ready, in one run with the plain ones.

plain:  launch call sent -> RUNNING -> JupyterLab is opened -> ready
second: the same with a repository that was launched before: its files are fetched, its packages are there
first:  the same while its packages are still to be installed

`second_start_ratio` is the median over the rounds, each of which has one of both. Each of `shapes` is fetched into a
folder: `seconds` is how long that takes, with a look before; `first_start_ratio` that of a start with the folder, which
installs packages, `ratio` that of later ones, in one of which its code is run. Prints one JSON object as its last line.
"""

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

from bench.common import SHAPE, ApiUser, load, timed
from bench.shared_platform import bench_platform
from bench.sizes import size
from imports.tests.git_host import GitHost
from imports.tests.shapes import LARGE, MANY, SHAPES, make_repository
from tests.execs import output_of
from tests.git_container import git_container
from tests.platform import Platform

EVERY_SECONDS = 0.05
TIMEOUT_SECONDS = 300
LARGE_BYTES = size(2**28, 2**20)
MANY_FILES = size(50_000, 500)


class Starter:
    """Launches sessions and opens JupyterLab in each."""

    def __init__(self, platform: Platform, address: str) -> None:
        self._platform, self._user = platform, ApiUser(platform)
        self._site = address.rpartition("/")[0]
        self._source = self._fetched({"address": address})

    def plain(self) -> None:
        """Start a session."""
        self._open(self._user.submit())

    def imported(self, installs: bool = True) -> str:
        """Start a session with the repository, and return its id."""
        body = {"image": self._user.image, "installs": installs, **SHAPE}
        (session,) = self._user.post(f"/imports/{self._source}/launch/", body)
        self._until(lambda: self._state("session_id", session["id"]) == "DONE", "import")
        self._open(session["id"])
        return str(session["id"])

    def fetch(self, title: str) -> None:
        """Look at the repository of a shape and fetch it into a new folder, with which sessions start then."""
        address = f"{self._site}/{title}"
        self._fetched({"address": address})
        self._source = self._fetched({"address": address, "folder_name": f"bench-{title}"})

    def run(self, session: str, title: str, script: str) -> None:
        """Run Python of a shape in its directory of the folder, with its packages if there are any."""
        (row,) = self._platform.rows("SELECT container_id FROM compute_session WHERE id = %s", session)
        words = f'cd ~/bench-{title}/{title} && PATH=.venv/bin:$PATH python -c "$CODE"'
        with closing(docker.APIClient(version="auto")) as client:
            code, output = output_of(client, row["container_id"], f"CODE={shlex.quote(script)}\n{words}", "work")
        if code:
            raise RuntimeError(output)

    def end(self) -> None:
        """End what runs, and return once it holds nothing."""
        self._platform.end_sessions()

    def _open(self, session: str) -> None:
        self._user.wait(session, "RUNNING")
        app = f"/sessions/{session}/apps/jupyterlab/"
        self._user.post(app, {})
        self._until(lambda: self._user.get(app)["state"] == "READY", "JupyterLab")

    def _fetched(self, body: dict[str, Any]) -> str:
        made = str(self._user.post("/imports/", body)["id"])
        self._until(lambda: self._state("id", made) == "DONE", "import")
        return made

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
    parser.add_argument("--shape-rounds", type=int, default=size(3, 1))
    parser.add_argument(
        "--shapes", nargs="*", choices=list(SHAPES), default=size(list(SHAPES), ["requirements", LARGE, MANY])
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        host = GitHost(Path(folder) / "made")
        titles = {
            name: make_repository(host, name, many=MANY_FILES, large=LARGE_BYTES)
            for name in asked.shapes
            if name != "requirements" or "submodules" not in asked.shapes  # which makes it, too
        } | ({"requirements": "requirements"} if "requirements" in asked.shapes else {})
        with (
            bench_platform("bench-imports") as platform,
            git_container(lambda url: _filled(host, url)) as address,
        ):
            starter = Starter(platform, address)
            figures = measure(starter, asked.rounds)
            shapes = {name: measure_shape(starter, name, title, asked.shape_rounds) for name, title in titles.items()}
    sys.stdout.write(json.dumps(figures | {"shapes": shapes, "load": load()}) + "\n")


def _filled(host: GitHost, url: str) -> Path:
    """Return the repositories of a host, with the large files that they point to, to be served at this URL."""
    objects = []
    for digest, content in host.objects.items():
        (host.root / digest).write_bytes(content)
        objects.append({"oid": digest, "actions": {"download": {"href": f"{url}/{digest}"}}})
    (host.root / "batch").write_text(json.dumps({"objects": objects}))
    return host.root


def measure(starter: Starter, rounds: int) -> dict[str, Any]:
    """Return the figures of one first start, and of `rounds` rounds with a plain and a second start each."""
    _taken(starter, starter.plain)  # warms up
    first = _taken(starter, starter.imported)
    pairs = [(_taken(starter, starter.plain), _taken(starter, starter.imported)) for _ in range(rounds)]
    plain, second = (statistics.median(values) for values in zip(*pairs, strict=True))
    figures = {"plain_ms": plain, "first_start_ms": first, "second_start_ms": second}
    return {
        **{name: round(value) for name, value in figures.items()},
        "first_start_ratio": round(first / plain, 2),
        "second_start_ratio": round(statistics.median(second / plain for plain, second in pairs), 2),
        "rounds": rounds,
    }


def measure_shape(starter: Starter, name: str, title: str, rounds: int) -> dict[str, Any]:
    """Return the figures of the repository of one shape."""
    shape, before = SHAPES[name], load()
    seconds = timed(lambda: starter.fetch(title)) / 1000
    sessions: list[str] = []

    def imported() -> None:
        sessions.append(starter.imported(shape.installs))
        if len(sessions) == 2:
            starter.run(sessions[-1], title, shape.runs)

    first = _taken(starter, imported)
    _taken(starter, imported)
    pairs = [(_taken(starter, starter.plain), _taken(starter, imported)) for _ in range(rounds)]
    plain = statistics.median(value for value, _ in pairs)
    sys.stderr.write(f"{name}: {seconds:.1f} s to look and fetch, load {before[0]}\n")
    return {
        "seconds": round(seconds, 1),
        "first_start_ratio": round(first / plain, 2),
        "ratio": round(statistics.median(second / plain for plain, second in pairs), 2),
        "load": before[0],
    }


def _taken(starter: Starter, start: Callable[[], object]) -> float:
    value = timed(start)
    starter.end()
    sys.stderr.write(f"{start.__name__}: {value:.0f} ms\n")
    return value


if __name__ == "__main__":
    main()
