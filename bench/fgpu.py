"""What the hook costs and how exact the gate is, on the simulated driver: `python -m bench.fgpu`.

Plain and hooked runs alternate within one run of this program; a figure is the least of all its runs, and of a run's
calls that of the fastest part, since other work on the machine only ever adds to it. The last line is one JSON object.
The costs are those of the hook's own code: the simulated driver's calls are cheaper than a real one's, so a ratio of
plain to hooked here says nothing about real programs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.sizes import size
from fgpu.limits import Sharing
from fgpu.mounts import BUILD
from fgpu.tests.host import Host, Session, limit
from fgpu.tests.sharing import Load, contend, run_beside, sessions_of
from tests.exclusive import exclusive

ROUNDS = size(21, 1)
CALLS = size(50_000, 100)
STARTS = size(200, 1)
STREAMS = (1000, 10_000)
STREAM_ROUNDS = size(3, 1)
GATE_MS = size(5000, 500)
SHARES = size(("10", "25", "50"), ("50",))
PATTERNS = ("sync", "async", "graph")
CONTENTION_MS = size(10_000, 500)  # of virtual time
CONTENDERS: tuple[tuple[float, ...], ...] = size(
    ((50,) * 2, (25,) * 4, (12.5,) * 8, (10,) * 10, (10, 20, 30, 40)), ((50,) * 2,)
)
LAUNCHES_MS: tuple[float, ...] = size((0.02, 1, 5, 20, 50), (1,))
GRAPHS_MS = size((10, 40), (10,))  # of ten kernels
LONE_PERCENT = 25
OWNER_PERCENT = 60


@contextmanager
def simulated_host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="fgpu-bench-") as folder:
        host = Host(Path(folder))
        yield host
        host.stop()


def least(samples: dict[str, list[float]], digits: int) -> dict[str, float]:
    return {name: round(min(values), digits) for name, values in samples.items()}


def interleave(rounds: int, measures: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Call every measure in turn, `rounds` times over; return {name: [figure, ...]}."""
    samples: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            samples[name].append(measure())
    return samples


def call_cost(session: Session, column: int) -> float:
    return float(session.run("test/cost", str(CALLS)).split()[column])


def streams_cost(session: Session, streams: int) -> dict[str, float]:
    """Return ns of CPU time per launch on each of the streams in turn, all of them in use, and on one afterwards."""
    each, afterwards = map(float, session.run("test/cost", str(CALLS), str(streams)).split())
    return {"each": each, "afterwards": afterwards}


def streams(host: Host, count: int) -> dict[str, dict[str, float]]:
    """Return what launches over so many streams cost, without and with the hook: the least of some runs."""
    sessions = {"plain": host.bare(), "gated": host.session(limit(sm="99"))}
    runs = [{name: streams_cost(session, count) for name, session in sessions.items()} for _ in range(STREAM_ROUNDS)]
    return {
        name: {figure: min(run[name][figure] for run in runs) for figure in ("each", "afterwards")} for name in sessions
    }


def start_ms(session: Session) -> float:
    environment = session.environment()
    began = time.perf_counter()
    subprocess.run(["/bin/true"], check=True, env=environment)
    return (time.perf_counter() - began) * 1000


def gate_error(percent: str, pattern: str, processes: int) -> float:
    """Return the largest deviation from the share, in percentage points, over the processes of one session."""
    with simulated_host() as host:
        session = host.session(limit(sm=percent))
        clock = {"FGPU_SIM_CLOCK": "virtual", "FGPU_SIM_PARTIES": str(processes)}
        running = [session.start("test/load", pattern, "1000", str(GATE_MS), **clock) for _ in range(processes)]
        errors = [float(process.communicate()[0].split()[0]) - float(percent) for process in running]
    return round(max(max(errors), -min(errors)), 2)


def loads() -> dict[str, Load]:
    """Return what is launched, by the name that the figures have."""
    launches = {f"{ms:g}": Load("async", round(ms * 1000), CONTENTION_MS) for ms in LAUNCHES_MS}
    return launches | {f"graph {ms:g}": Load("graph", ms * 100, CONTENTION_MS) for ms in GRAPHS_MS}


def contention() -> list[dict[str, object]]:
    """Return each session's part of the GPU's time under `cap`, and how busy it was, with and without any gate."""
    found: list[dict[str, object]] = []
    for shares in CONTENDERS:
        for name, load in loads().items():
            with simulated_host() as host:
                each, total = contend(host, shares, load)
            with simulated_host() as host:
                _, ungated = contend(host, shares, load, gated=False)
            share = shares[0] if len(set(shares)) == 1 else list(shares)
            found.append(
                {
                    "sessions": len(shares),
                    "share": share,
                    "launch_ms": name,
                    "each": [round(part, 2) for part in each],
                    "total": round(total, 2),
                    "ungated": round(ungated, 2),
                }
            )
    return found


def lone(sharing: Sharing) -> dict[str, float]:
    """Return the part of the GPU's time that a session has which is alone on it, in percent, by what it launches."""
    figures: dict[str, float] = {}
    for name, load in loads().items():
        with simulated_host() as host:
            [part], _ = contend(host, [LONE_PERCENT], load, sharing)
        figures[name] = round(part, 2)
    return figures


def handback() -> dict[str, dict[str, float]]:
    """Return how long an owner's first kernel waits for a `burst` neighbour, and its part of the first 200 ms."""
    figures: dict[str, dict[str, float]] = {}
    for name, load in loads().items():
        with simulated_host() as host:
            owner, neighbour = sessions_of(host, [OWNER_PERCENT, 100 - OWNER_PERCENT], "burst")
            wake = Load("wake", 1000, 1000, 500_000)
            first_ms, early, _ = run_beside([(owner, wake), (neighbour, load)])[0]
        figures[name] = {"first_ms": round(first_ms, 2), "percent_of_first_200_ms": round(early, 1)}
    return figures


def short_lived() -> dict[str, float]:
    """Return how busy processes with one kernel of 200 ms each, one after the other, keep the GPU at 10 %."""
    figures: dict[str, float] = {}
    for pattern in ("once", "drop"):
        with simulated_host() as host:
            [session] = sessions_of(host, [10])
            [[busy, *_]] = run_beside([(session, Load(f"short-{pattern}", 200_000, CONTENTION_MS * 2))])
        figures[pattern] = round(busy, 2)
    return figures


def build() -> None:
    """Have all that the tests of the hook have; up to date takes no time."""
    with exclusive("fgpu-build"):
        subprocess.run(["make", "-s", "-C", str(BUILD.parent), f"PYTHON={sys.executable}", "tests"], check=True)


def main() -> None:
    build()
    with simulated_host() as host:
        plain, hooked, gated = host.bare(), host.session(limit(sm="100")), host.session(limit(sm="99"))
        figures: dict[str, object] = {
            "alloc_free_ns": least(
                interleave(ROUNDS, {"plain": lambda: call_cost(plain, 0), "hooked": lambda: call_cost(hooked, 0)}), 1
            ),
            "launch_ns": least(
                interleave(
                    ROUNDS,
                    {
                        "plain": lambda: call_cost(plain, 1),
                        "hooked": lambda: call_cost(hooked, 1),
                        "gated": lambda: call_cost(gated, 1),
                    },
                ),
                1,
            ),
            "process_start_ms": least(
                interleave(STARTS, {"plain": lambda: start_ms(plain), "hooked": lambda: start_ms(hooked)}), 3
            ),
        }
        figures |= {f"streams_{count}_launch_ns": streams(host, count) for count in STREAMS}
    figures["gate_error_points"] = {
        f"{processes} process{'es' if processes > 1 else ''}": {
            percent: {pattern: gate_error(percent, pattern, processes) for pattern in PATTERNS} for percent in SHARES
        }
        for processes in (1, 4)
    }
    figures |= {
        "contention": contention(),
        "lone_burst": lone("burst"),
        "lone_cap": lone("cap"),
        "handback_ms": handback(),
        "short_lived_at_10_percent": short_lived(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
