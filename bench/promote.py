"""From one session's release to the next one's start, against the same container on the bare engine, interleaved.

platform: release committed -> next container started. The one is the time of the first session's TERMINATED event,
          taken in the transaction that frees its lease; the other that of the next session's RUNNING event, taken when
          the engine's start request has been answered and the container has its name. So the scheduling pass, both
          messages, the claim, create and start are within; the next session has waited for the GPU.
raw:      create + start, the requests sent -> answered.

Each measurement begins with the platform's network sandboxes ready, so that none is made meanwhile; `joined` says how
many of the starts had one. `--sandboxes 0` measures without. Prints one JSON object as its last line; `ratio` is p50 by
p50, `overhead_ms` the platform's p50 less the engine's.
"""

import argparse
import json
import statistics
import sys
from typing import Any

from bench.common import ApiUser, BareEngine, load, timed
from bench.shared_platform import SANDBOXES, bench_platform
from bench.sizes import size
from tests.platform import Platform

WARM_UP_ROUNDS = size(2, 0)
POLL_SECONDS = 0.05  # times are those of the events, so polling need not be fast
BETWEEN = (
    "SELECT extract(epoch FROM started.at - released.at)::float * 1000 AS ms"
    " FROM compute_sessionevent released, compute_sessionevent started"
    " WHERE released.session_id = %s AND released.new_status = 'TERMINATED'"
    " AND started.session_id = %s AND started.new_status = 'RUNNING'"
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=size(25, 2))
    parser.add_argument("--sandboxes", type=int, default=SANDBOXES)
    options = parser.parse_args()
    settings = {"COMPUTE_SANDBOX_POOL": str(options.sandboxes)}
    with bench_platform("bench-promote", **settings) as platform:
        client = ApiUser(platform)
        engine = BareEngine(client.image, platform.host_name, options.sandboxes)
        figures = measure(platform, client, engine, options.rounds)
    sys.stdout.write(json.dumps(figures | {"sandboxes": options.sandboxes}) + "\n")


def measure(platform: Platform, client: ApiUser, engine: BareEngine, rounds: int) -> dict[str, Any]:
    """Return the figures of `rounds` promotions and as many bare starts, after the warm-up rounds."""
    promoted: list[float] = []
    raw: list[float] = []
    joined = 0
    holder = client.submit()
    client.wait(holder, "RUNNING")
    for number in range(WARM_UP_ROUNDS + rounds):
        waiting = client.submit()
        engine.settle()
        client.terminate(holder)
        client.wait(waiting, "RUNNING", POLL_SECONDS)
        client.wait(holder, "TERMINATED")
        (took,) = platform.rows(BETWEEN, holder, waiting)
        joined += number >= WARM_UP_ROUNDS and engine.has_sandbox(waiting)
        holder = waiting
        promoted.append(took["ms"])
        raw.append(raw_start(engine))
        sys.stderr.write(f"round {number}: platform {promoted[-1]:.0f}, raw {raw[-1]:.0f}\n")
    client.terminate(holder)
    client.wait(holder, "TERMINATED")
    platform_ms, raw_ms = summary(promoted[WARM_UP_ROUNDS:]), summary(raw[WARM_UP_ROUNDS:])
    return {
        "platform_ms": platform_ms,
        "raw_ms": raw_ms,
        "ratio": round(platform_ms["p50"] / raw_ms["p50"], 3),
        "overhead_ms": round(platform_ms["p50"] - raw_ms["p50"], 1),
        "rounds": rounds,
        "joined": joined,
        "image": client.image,
        "load": load(),
    }


def raw_start(engine: BareEngine) -> float:
    """Return the milliseconds of one bare create and start, and remove the container."""
    names: list[str] = []
    engine.settle()
    took = timed(lambda: names.append(engine.launch()))
    engine.end(names[0])
    return took


def summary(values: list[float]) -> dict[str, float]:
    """Return median, 90th percentile and maximum in milliseconds."""
    return {
        "p50": round(statistics.median(values), 1),
        "p90": round(statistics.quantiles(values, n=10, method="inclusive")[-1], 1),
        "max": round(max(values), 1),
    }


if __name__ == "__main__":
    main()
