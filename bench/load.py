"""`make load`: a whole platform under many hosts, sessions, browsers, terminals and programs at once.

PostgreSQL, Redis, web, scheduler, beat and simulated hosts (`manage.py simulatedhosts`) run as in production, each a
process of its own. Sessions hold every GPU, and others wait, so that each end promotes one. The full size is 1,000
hosts of 8 GPUs, 10,000 sessions, 500 browsers with a live list, 200 terminals and 2,000 programs; `--scale 0.1` is a
tenth of each, and each has an argument of its own. Prints one JSON object as its last line:

submit_ms:    a program's POST until its response
promotion_ms: the end of a session until the next one on its host runs, by their events
delivery_ms:  the event of a change until a browser that shows it has the row
roles:        share of a core and MiB, for each role; transactions_per_second are PostgreSQL's
hosts_alone:  the same before any client comes: what hosts ask of the database while nothing happens
growth:       of each role: MiB, descriptors and threads after each of `--parts` equal parts of the time

`--users 25,50,100` measures these numbers of users one after another, each with a browser, a terminal and a program, on
as many hosts as two sessions of each need, until one is too many: more than 1 % of the requests refused, failed or
without a response, a browser or terminal that is not open at the end, or p95 of submit_ms beyond 1 s or of an echo
beyond 100 ms. Then `steps` has the figures of each number, and `knee` is the last that held.
"""

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.common import load
from bench.files import server
from bench.fresh_services import MANAGE, fresh_services, shell_facts
from bench.load_clients import KINDS, LoadClients, Measurements
from bench.load_roles import RoleUse, process_with, uses
from bench.sizes import size
from operations import embedded
from operations.supervisor.processes import CELERY
from tests.ports import free_port

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "bench-load"
HOST: Final = "127.0.0.1"
FULL: Final = {"hosts": 1_000, "sessions": 10_000, "browsers": 500, "terminals": 200, "clients": 2_000}
READY_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = size(10.0, 0.5)
WORLD: Final = "from bench import load_world; load_world."
CHANGED: Final = ("RUNNING", "TERMINATED")
CLIENTS: Final = ("browsers", "terminals", "clients")
GPUS: Final = 8  # of a host
HELD_BY_EACH: Final = 2  # sessions of a user: one has a terminal, the other is there to be ended
MAX_REFUSED: Final = 0.01  # of the requests
MAX_P95: Final = {"submit_ms": 1000, "terminal_echo_ms": 100}
EVENTS: Final = """
    SELECT event.session_id, event.new_status, extract(epoch FROM event.at)::float, session.host_id
    FROM compute_sessionevent event JOIN compute_session session ON session.id = event.session_id
    WHERE event.at > to_timestamp(%s) AND event.new_status = ANY(%s) ORDER BY event.at
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=size(0.1, 0.005), help="part of the full size")
    for name, most in FULL.items():
        parser.add_argument(f"--{name}", type=int, help=f"in place of its part of {most}")
    parser.add_argument("--seconds", type=float, default=size(60, 3))
    parser.add_argument(
        "--alone-seconds", type=float, default=size(30, 1), help="in which the hosts are measured alone before"
    )
    parser.add_argument("--parts", type=int, default=size(6, 2), help="of the time, after each of which roles are read")
    parser.add_argument("--pause", type=float, default=size(20, 1), help="seconds between two requests of one program")
    parser.add_argument("--web-processes", type=int, default=1)
    parser.add_argument("--users", type=lambda text: [int(each) for each in text.split(",")], help="N,N,...: see above")
    options = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    sizes = {name: getattr(options, name) or max(1, round(most * options.scale)) for name, most in FULL.items()}
    if users := options.users:
        hosts = -(-HELD_BY_EACH * max(users) // GPUS)
        sizes = {"hosts": hosts, "sessions": hosts * GPUS + 10, **dict.fromkeys(CLIENTS, max(users))}
    with running(sizes, options.web_processes) as platform:
        measuring = platform.find_knee(users, options) if users else platform.measure(options)
        figures = asyncio.run(measuring)
    sys.stdout.write(json.dumps({"size": sizes, **figures, "load": load()}) + "\n")


class LoadedPlatform:
    """A running platform with its clients' keys, and the first process of each role."""

    def __init__(self, address: str, made: Mapping[str, Any], roots: Mapping[str, int]) -> None:
        self._address = address
        self._made = made
        self._roots = roots

    async def measure(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return the figures of the hosts alone, then those of so many seconds after all clients are there."""
        await asyncio.sleep(SETTLE_SECONDS)
        alone = await self._cost([options.alone_seconds], [])
        return {**await self._with_clients(options), "hosts_alone": alone}

    async def find_knee(self, steps: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
        """Return the figures of each number of users up to the first that is too many, and the last that is not."""
        found: list[dict[str, Any]] = []
        knee = 0
        await asyncio.sleep(SETTLE_SECONDS)
        for users in steps:
            figures = await self._with_clients(options, users)
            found.append({"users": users, **figures})
            if not _holds(figures, users):
                break
            knee = users
        return {"steps": found, "knee": knee}

    async def _with_clients(self, options: argparse.Namespace, users: int | None = None) -> dict[str, Any]:
        """Return the figures of so many seconds after the clients are there, each kind `users` of them, else all."""
        measured = Measurements()
        clients = LoadClients(self._address, measured, [session for _cookie, session in self._made["terminals"]])
        cookies, terminals, tokens = (self._made[name][:users] for name in ("cookies", "terminals", "tokens"))
        clients.begin(cookies, terminals, tokens, self._made["image"], options.pause)
        wanted = {"browsers": len(cookies), "terminals": len(terminals)}
        deadline = time.monotonic() + READY_SECONDS
        while clients.opened != wanted and not measured.failures and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        await asyncio.sleep(SETTLE_SECONDS)
        measured.milliseconds.clear()
        begun = time.time()
        growth: list[Mapping[str, RoleUse]] = []
        cost = await self._cost([options.seconds / options.parts] * options.parts, growth)
        ended, opened = time.time(), clients.opened.copy()
        await clients.end()
        events = _events(begun)
        return {
            **{f"{kind.replace(' ', '_')}_ms": _summary(measured.milliseconds.get(kind, ())) for kind in KINDS},
            "promotion_ms": _summary(_promotions(events)),
            "delivery_ms": _summary(_deliveries(events, measured.shown_at)),
            "statuses": measured.statuses,
            "failures": measured.failures,
            "refused_ms": _summary([each for times in measured.refusals.values() for each in times]),
            "refused_of_a_client": _summary([len(times) for times in measured.refusals.values()]),
            "requests_per_second": round(sum(map(len, measured.milliseconds.values())) / (ended - begun), 1),
            "opened": opened,
            **cost,
            "growth": _growth(growth),
        }

    async def _cost(self, parts: Sequence[float], samples: list[Mapping[str, RoleUse]]) -> dict[str, Any]:
        """Return what the platform takes during parts of so many seconds from now; add a sample after each."""
        begun, before, transactions = time.time(), uses(self._roots), _transactions()
        for seconds in parts:
            await asyncio.sleep(seconds)
            samples.append(uses(self._roots))
        after, took = samples[-1], time.time() - begun
        return {
            "transactions_per_second": round((_transactions() - transactions) / took, 1),
            "roles": _shares(before, after, took),
        }


def _holds(figures: Mapping[str, Any], users: int) -> bool:
    """Return whether the platform was fit to work with for so many users."""
    is_quick = all(figures[name].get("p95", 0) <= most for name, most in MAX_P95.items())
    is_open = all(count == users for count in figures["opened"].values())
    return is_quick and is_open and figures["refused_ms"]["count"] <= MAX_REFUSED * sum(figures["statuses"].values())


@contextmanager
def running(sizes: Mapping[str, int], web_processes: int) -> Iterator[LoadedPlatform]:
    """Run a platform of this size during the block."""
    settings = {
        "COMPUTE_HOST_NAME": "none",
        "COMPUTE_BACKUP_HOURS": "0",
        "COMPUTE_API_REQUESTS_PER_MINUTE": "0",
        "COMPUTE_WEB_PROCESSES": str(web_processes),
        "DEBUG": "false",
    }
    port = free_port()
    with ExitStack() as stack:
        environment = stack.enter_context(fresh_services(FOLDER, **settings))
        subprocess.run([*MANAGE, "collectstatic", "--no-input", "-v", "0"], env=environment, check=True)
        made = shell_facts(environment, f"{WORLD}people({sizes['clients']}, {sizes['browsers']})")
        hosts = (*MANAGE, "simulatedhosts", "--hosts", str(sizes["hosts"]), "--group", "load")
        with _process(hosts, environment):  # so that there are GPUs to hold
            _wait(lambda: _count("resources_host", "status = 'READY'") == sizes["hosts"], "the hosts")
        made["terminals"] = shell_facts(
            environment, f"{WORLD}sessions({sizes['sessions']}, {sizes['terminals']}, {sizes['clients']})"
        )
        roots = {"postgres": process_with(f"-D {FOLDER}/postgres"), "redis": process_with(f"unixsocket:{FOLDER}")}
        worker = "worker -Q scheduler -n scheduler@bench --pool solo --concurrency 1 --without-gossip --without-mingle"
        roots["hosts"] = stack.enter_context(_process(hosts, environment)).pid
        web = [*MANAGE, "web", "--address", f"{HOST}:{port}"]
        roots["web"] = stack.enter_context(server(web, environment, port))
        roots["scheduler"] = stack.enter_context(_process((*CELERY, *worker.split()), environment)).pid
        beat = (*CELERY, "beat", "--schedule", str(FOLDER / "beat"), "--loglevel", "WARNING")
        roots["beat"] = stack.enter_context(_process(beat, environment)).pid
        _wait(lambda: _count("resources_host", "status = 'READY'") == sizes["hosts"], "the hosts")
        yield LoadedPlatform(f"{HOST}:{port}", made, roots)


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} were not ready within {READY_SECONDS:.0f} s")
        time.sleep(0.5)


def _rows(query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(embedded.database_url(FOLDER)) as connection:
        return connection.execute(query, parameters).fetchall()


def _count(table: str, where: str) -> int:
    return int(_rows(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])


def _transactions() -> int:
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    return int(_rows(query)[0][0])


def _events(since: float) -> list[tuple[str, str, float, int | None]]:
    """Return (session, status, time, host) of each start and end since then, in their order."""
    return [(pk, status, at, host) for pk, status, at, host in _rows(EVENTS, since, list(CHANGED))]


def _promotions(events: Sequence[tuple[str, str, float, int | None]]) -> list[float]:
    """Return the milliseconds from each end to the next start on the same host, which was full."""
    ended: dict[int | None, list[float]] = defaultdict(list)
    took = []
    for _, status, at, host in events:
        if status == "TERMINATED":
            ended[host].append(at)
        elif ended[host]:
            took.append((at - ended[host].pop(0)) * 1000)
    return took


def _deliveries(
    events: Sequence[tuple[str, str, float, int | None]], arrivals: Mapping[str, Sequence[float]]
) -> list[float]:
    """Return the milliseconds from each change to its first arrival at a browser, of those that were pushed as rows."""
    first = ((min((each for each in arrivals.get(pk, ()) if each >= at), default=None), at) for pk, _, at, _ in events)
    return [(arrived - at) * 1000 for arrived, at in first if arrived is not None]


def _shares(before: Mapping[str, RoleUse], after: Mapping[str, RoleUse], seconds: float) -> dict[str, dict[str, float]]:
    return {
        role: {
            "cores": round((use.cpu_seconds - before[role].cpu_seconds) / seconds, 3),
            "memory_mib": round(use.memory_mib, 1),
        }
        for role, use in after.items()
    }


def _growth(samples: Sequence[Mapping[str, RoleUse]]) -> dict[str, dict[str, list[float]]]:
    return {
        role: {
            "memory_mib": [round(sample[role].memory_mib, 1) for sample in samples],
            "descriptors": [sample[role].descriptors for sample in samples],
            "threads": [sample[role].threads for sample in samples],
        }
        for role in samples[0]
    }


def _summary(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, 95th percentile and maximum."""
    if len(values) < 2:  # there are no percentiles of one
        return {"count": len(values)}
    p95 = statistics.quantiles(values, n=20, method="inclusive")[-1]
    middle = statistics.median(values)
    return {"count": len(values), "p50": round(middle, 1), "p95": round(p95, 1), "max": round(max(values), 1)}


if __name__ == "__main__":
    main()
