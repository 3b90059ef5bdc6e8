"""Launch and release through the platform against the same container on the bare engine, interleaved in one run.

launch:  API call sent -> the session is RUNNING          raw: create + start
release: terminate call sent -> the next one is RUNNING   raw: stop + remove + create + start

RUNNING is when a reader of the database sees it, asked every two milliseconds. Each measurement begins with the network
sandboxes of the platform ready, so that none of them is made meanwhile. Prints one JSON object as its last line.
"""

import argparse
import json
import statistics
import sys
from typing import Any

from bench.common import ApiUser, BareEngine, load, timed
from bench.shared_platform import SANDBOXES, bench_platform
from bench.sizes import size

WARM_UP_ROUNDS = size(2, 0)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(25, 2))
    rounds = parser.parse_args().rounds
    with bench_platform("bench-launch", COMPUTE_SANDBOX_POOL=str(SANDBOXES)) as platform:
        client = ApiUser(platform)
        figures = measure(client, BareEngine(client.image, platform.host_name, SANDBOXES), rounds)
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(client: ApiUser, engine: BareEngine, rounds: int) -> dict[str, Any]:
    """Return the figures of `rounds` rounds after those that warm up; each round does all four once."""
    taken: dict[str, list[float]] = {name: [] for name in ("launch_ms", "raw_ms", "release_ms", "raw_release_ms")}
    for number in range(WARM_UP_ROUNDS + rounds):
        one = round_trip(client, engine)
        sys.stderr.write(f"round {number}: {', '.join(f'{name} {value:.0f}' for name, value in one.items())}\n")
        if number >= WARM_UP_ROUNDS:
            for name, value in one.items():
                taken[name].append(value)
    figures: dict[str, Any] = {name: summary(values) for name, values in taken.items()}
    figures["launch_overhead_ms"] = round(figures["launch_ms"]["p50"] - figures["raw_ms"]["p50"], 1)
    figures["release_overhead_ms"] = round(figures["release_ms"]["p50"] - figures["raw_release_ms"]["p50"], 1)
    return figures | {"rounds": rounds, "image": client.image, "load": load()}


def round_trip(client: ApiUser, engine: BareEngine) -> dict[str, float]:
    """Return the milliseconds of one launch and one release, each through the platform and on the bare engine."""
    sessions: list[str] = []

    def launch() -> None:
        sessions.append(client.submit())
        client.wait(sessions[0], "RUNNING")

    def release() -> None:
        client.terminate(sessions[0])
        client.wait(sessions[1], "RUNNING")

    containers: list[str] = []

    def raw_release() -> None:
        engine.end(containers.pop())
        containers.append(engine.launch())

    one: dict[str, float] = {}
    engine.settle()
    one["launch_ms"] = timed(launch)
    engine.settle()
    one["raw_ms"] = timed(lambda: containers.append(engine.launch()))
    sessions.append(client.submit())  # waits, for the first holds the GPU
    engine.settle()
    one["release_ms"] = timed(release)
    engine.settle()
    one["raw_release_ms"] = timed(raw_release)
    client.terminate(sessions[1])
    client.wait(sessions[1], "TERMINATED")
    engine.end(containers.pop())
    return one


def summary(values: list[float]) -> dict[str, float]:
    """Return median and 95th percentile in milliseconds."""
    return {
        "p50": round(statistics.median(values), 1),
        "p95": round(statistics.quantiles(values, n=20, method="inclusive")[-1], 1),
    }


if __name__ == "__main__":
    main()
