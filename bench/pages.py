"""`make bench-pages`: how long the web process takes for every page with 1,000 hosts and 10,000 sessions.

The pages are those of tests/page_world.py, found by the URL table, which a superadmin sees, and those of PAGES. One
client asks for each in turn, over one connection on loopback, in rounds, so that what else the machine does falls on
all pages alike; `ratio_to_empty_view` is a page's median against that of a page with the frame alone, and `cpu_ms` and
`statements` are what bench/page_cost.py counts, which other load changes little. Before, eight clients at once ask for
the list of sessions, and a session changes while 500 lists are open. At last a user with Chromium clicks through pages
and dialogs with a warm cache, and opens a page of each kind with an empty one: the time until each is painted. The last
line is one JSON object.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import page_paint
from bench.common import load
from bench.files import server
from bench.fresh_services import MANAGE, fresh_services, shell_facts
from bench.page_updates import measure
from bench.sizes import size
from operations.machine import system_packages
from tests.ports import free_port

ROOT: Final = Path(__file__).resolve().parent.parent
HOST: Final = "127.0.0.1"
CLIENTS: Final = 8
EMPTY: Final = "empty"
MAX_PAGES: Final = size(None, 10)  # of the URL table
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


class Answer(NamedTuple):
    """What came of asking for a page: whether it is one, and what it cost."""

    is_ok: bool
    is_document: bool
    milliseconds: float
    cpu_ms: float = 0
    statements: float = 0


class Browser:
    """One connection of one user."""

    def __init__(self, port: int, cookie: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._headers = {"Cookie": f"gp_session={cookie}"}

    def get(self, path: str) -> Answer:
        """Return what came of asking for a page, which is read to its end."""
        headers = self._headers | ({"HX-Request": "true"} if "htmx" in path else {})
        close_if_dropped(self._connection)
        begun = time.perf_counter()
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        begins = response.read()[:500]
        milliseconds = (time.perf_counter() - begun) * 1000
        costs = re.findall(r"dur=([\d.]+)", response.getheader("Server-Timing", ""))
        return Answer(response.status == http.HTTPStatus.OK, b"<html" in begins, milliseconds, *map(float, costs))


def close_if_dropped(connection: http.client.HTTPConnection) -> None:
    """Have a connection open again for its next request where the server has closed it, being idle for too long."""
    if connection.sock and select.select([connection.sock], [], [], 0)[0]:
        connection.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(20, 2))
    parser.add_argument("--hosts", type=int, default=size(1_000, 10))
    parser.add_argument("--sessions", type=int, default=size(10_000, 100))
    parser.add_argument("--seconds", type=float, default=size(10, 0.2), help="how long eight clients ask for the list")
    parser.add_argument("--browsers", type=int, default=size(500, 5), help="with the list open when it changes")
    parser.add_argument("--hold", action="store_true", help="serve until Ctrl-C instead")
    options = parser.parse_args()
    with running("bench-pages", options.hosts, options.sessions) as (port, made, environment):
        if options.hold:
            print(f"http://{HOST}:{port}/ with the cookies {made['cookies']}")
            threading.Event().wait()
        administrator = made["cookies"]["administrator"]
        figures: dict[str, Any] = {"list_pages_per_second": throughput(port, administrator, options.seconds)}
        update = measure(f"{HOST}:{port}", administrator, options.browsers, environment)
        figures["update_of_open_lists_ms"] = asyncio.run(update)
        folder = ROOT / "var" / "bench-pages" / "data"
        every = shell_facts(environment, f"from bench.every_page import main; main({str(folder)!r})")
        figures |= every_figures(page_figures(port, made, every, options.rounds))
        system_packages.ensure(system_packages.CHROMIUM, print)
        url = f"http://{HOST}:{port}"
        figures |= page_paint.measure(url, made["cookies"]["user"])
        figures |= page_paint.first_paints(url, every["cookie"], every["paths"])
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


@contextmanager
def running(
    folder: str, hosts: int, sessions: int, **variables: str
) -> Iterator[tuple[int, dict[str, Any], dict[str, str]]]:
    """Serve a platform with that many hosts and sessions; give its port, bench/page_world.py's facts, the settings.

    Its data are in a folder of var; `variables` are further settings.
    """
    settings = {
        "DEBUG": os.environ.get("BENCH_DEBUG", "false"),
        "DJANGO_SETTINGS_MODULE": "bench.page_settings",
        **variables,
    }
    port = free_port()
    with ExitStack() as stack:
        environment = stack.enter_context(fresh_services(ROOT / "var" / folder, **settings))
        subprocess.run([*MANAGE, "collectstatic", "--no-input", "-v", "0"], env=environment, check=True)
        made = shell_facts(environment, f"from bench.page_world import main; main({hosts}, {sessions})")
        stack.enter_context(server([*MANAGE, "web", "--address", f"{HOST}:{port}"], environment, port))
        yield port, made, environment


def page_figures(port: int, made: Mapping[str, Any], every: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Return of each page there is the milliseconds, their ratio to the empty page's, CPU milliseconds, statements.

    An address is a page where a GET shows a whole document.
    """
    browsers = {name: Browser(port, cookie) for name, cookie in made["cookies"].items()}
    every_browser = Browser(port, every["cookie"])
    pages = {name: (browsers[who], path.format(**made)) for name, (who, path) in PAGES.items()}
    found = {name: page for name, page in pages.items() if page[0].get(page[1]).is_ok}
    asked = ((name, path, every_browser.get(path)) for name, path in every["paths"].items())
    documents = ((name, path) for name, path, answer in asked if answer.is_ok and answer.is_document)
    found |= {name: (every_browser, path) for name, path in islice(documents, MAX_PAGES)}
    answers: dict[str, list[Answer]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, (browser, path) in found.items():
            answers[name].append(browser.get(path))
    least = statistics.median(answer.milliseconds for answer in answers[EMPTY])
    return {name: _summary(each, least) for name, each in answers.items()}


def every_figures(pages: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures of all pages, and the 95th percentile and the name of the slowest."""
    slowest = max(pages, key=lambda name: pages[name]["p95_ms"])
    return {"pages": pages, "p95_ms": pages[slowest]["p95_ms"], "slowest": slowest}


def throughput(port: int, cookie: str, seconds: float) -> float:
    """Return how many pages of the list a second CLIENTS get together."""
    until = time.monotonic() + seconds
    counts: list[int] = []

    def ask() -> None:
        browser, count = Browser(port, cookie), 0
        while time.monotonic() < until:
            count += browser.get("/sessions/").is_ok
        counts.append(count)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(counts) / seconds, 1)


def _summary(answers: Sequence[Answer], least: float) -> dict[str, float]:
    times = [answer.milliseconds for answer in answers]
    median, high = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return {
        "p50_ms": round(median, 1),
        "p95_ms": round(high, 1),
        "ratio_to_empty_view": round(median / least, 2),
        "cpu_ms": round(statistics.median(answer.cpu_ms for answer in answers), 1),
        "statements": round(statistics.median(answer.statements for answer in answers)),
    }


if __name__ == "__main__":
    main()
