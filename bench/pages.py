"""`make bench-pages`: how long the web process takes for each page with 1,000 hosts and 10,000 sessions.

One client asks for each page in turn, over one connection on loopback, in rounds, so that what else the machine does
falls on all pages alike; `ratio_to_empty_view` is a page's median against that of a page with the frame alone. Then
eight clients at once ask for the list of sessions, and a session changes while 500 lists are open. At last a user with
Chromium clicks through the pages and dialogs: the time until each is painted. The last line is one JSON object.
"""

import argparse
import asyncio
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench import page_paint
from bench.common import load
from bench.files import server
from bench.page_updates import measure
from operations.embedded_servers import redis_and_postgres as services
from operations.machine import system_packages
from tests.ports import free_port

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "bench-pages"
HOST: Final = "127.0.0.1"
MANAGE: Final = (sys.executable, "manage.py")
CLIENTS: Final = 8
EMPTY: Final = "empty"
PAGES: Final = {  # name: who asks, and for what; {session} and {name} are of the user's own
    EMPTY: ("user", "/bench/empty/"),
    "summary": ("user", "/"),
    "sessions": ("user", "/sessions/"),
    "sessions_of_all": ("administrator", "/sessions/"),
    "sessions_last_page": ("administrator", "/sessions/?tab=finished&page=250"),
    "sessions_search": ("administrator", "/sessions/?q={name}"),
    "sessions_part": ("administrator", "/sessions/?htmx"),
    "session": ("user", "/sessions/{session}/"),
    "launch": ("user", "/sessions/launch/"),
    "folders": ("user", "/folders/"),
    "hosts": ("administrator", "/hosts/"),
    "environments": ("user", "/environments/"),
    "account": ("user", "/accounts/"),
}


class Browser:
    """One connection of one user."""

    def __init__(self, port: int, cookie: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._headers = {"Cookie": f"gp_session={cookie}"}

    def get(self, path: str) -> tuple[int, float]:
        """Return the status and the milliseconds of a page, which is read to its end."""
        headers = self._headers | ({"HX-Request": "true"} if "htmx" in path else {})
        begun = time.perf_counter()
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        response.read()
        return response.status, (time.perf_counter() - begun) * 1000


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10, help="how long eight clients ask for the list")
    parser.add_argument("--browsers", type=int, default=500, help="how many have the list open when a session changes")
    parser.add_argument("--hold", action="store_true", help="serve until Ctrl-C instead")
    options = parser.parse_args()
    with running(options.hosts, options.sessions) as (port, made, environment):
        if options.hold:
            print(f"http://{HOST}:{port}/ with the cookies {made['cookies']}")
            threading.Event().wait()
        figures = page_figures(port, made, options.rounds)
        administrator = made["cookies"]["administrator"]
        figures["list_pages_per_second"] = throughput(port, administrator, options.seconds)
        update = measure(f"{HOST}:{port}", administrator, options.browsers, environment)
        figures["update_of_open_lists_ms"] = asyncio.run(update)
        system_packages.ensure(system_packages.CHROMIUM, print)
        figures |= page_paint.measure(f"http://{HOST}:{port}", made["cookies"]["user"])
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


@contextmanager
def running(hosts: int, sessions: int, **variables: str) -> Iterator[tuple[int, dict[str, Any], dict[str, str]]]:
    """Serve a platform with that many hosts and sessions; give its port, bench/page_world.py's facts, the settings.

    `variables` are further settings.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    environment = os.environ | {
        "SECRET_KEY": "only-for-the-benchmark-" + "0" * 50,
        "COMPUTE_VAR_DIR": str(FOLDER),
        "COMPUTE_LOG_LEVEL": "WARNING",
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "DEBUG": os.environ.get("BENCH_DEBUG", "false"),
        "DJANGO_SETTINGS_MODULE": "bench.page_settings",
        **variables,
    }
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(services.running(FOLDER, take_over=False))
        for command in (["migrate", "-v", "0"], ["collectstatic", "--no-input", "-v", "0"]):
            subprocess.run([*MANAGE, *command], env=environment, check=True)
        made = _populate(environment, hosts, sessions)
        stack.enter_context(server([*MANAGE, "web", "--address", f"{HOST}:{port}"], environment, port))
        yield port, made, environment
    shutil.rmtree(FOLDER)


def page_figures(port: int, made: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Return the median and the 95th percentile in milliseconds of each page there is, and its ratio to the empty."""
    browsers = {name: Browser(port, cookie) for name, cookie in made["cookies"].items()}
    pages = {name: (browsers[who], path.format(**made)) for name, (who, path) in PAGES.items()}
    found = {name: page for name, page in pages.items() if page[0].get(page[1])[0] == http.HTTPStatus.OK}
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, (browser, path) in found.items():
            times[name].append(browser.get(path)[1])
    least = statistics.median(times[EMPTY])
    return {name: _summary(each, least) for name, each in times.items()}


def throughput(port: int, cookie: str, seconds: float) -> float:
    """Return how many pages of the list a second CLIENTS get together."""
    until = time.monotonic() + seconds
    counts: list[int] = []

    def ask() -> None:
        browser, count = Browser(port, cookie), 0
        while time.monotonic() < until:
            status, _ = browser.get("/sessions/")
            count += status == http.HTTPStatus.OK
        counts.append(count)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(counts) / seconds, 1)


def _summary(times: list[float], least: float) -> dict[str, float]:
    median, high = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return {"p50_ms": round(median, 1), "p95_ms": round(high, 1), "ratio_to_empty_view": round(median / least, 2)}


def _populate(environment: Mapping[str, str], hosts: int, sessions: int) -> dict[str, Any]:
    code = f"from bench.page_world import main; main({hosts}, {sessions})"
    command = [*MANAGE, "shell", "--no-imports", "-v", "0", "-c", code]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


if __name__ == "__main__":
    main()
