"""Measures the scheduler: passes in memory and on PostgreSQL, what the policies get onto a trace's GPUs, memory.

`python -m bench.scheduler [--nodes CSV --pods CSV]`; the CSVs are in the format of Alibaba's openb trace, and without
them a small synthetic one is used. Prints what it does, and as its last line one JSON object.

Every time is wall-clock, the best of some runs, as other processes on the machine only add to it; the load averages
are printed. A decision is a waiting session placed, or explained.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bench.apps_ready  # noqa: F401  # before what imports models
from bench import scale
from bench.calibration import calibrate
from bench.database import measure_database
from bench.estimates import learned_estimates
from bench.sizes import size
from bench.starvation import bound_broken
from bench.trace import Trace, synthetic_trace
from bench.worlds import after_release, big_world, with_clusters, with_limits
from scheduler.advice.advisor import advise_on
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import plan
from scheduler.core.types import EPOCH, PlacementPolicyName
from scheduler.simulation.simulator import simulate
from scheduler.simulation.trace import missing_models, missing_text, read_trace

SIZES = size(((100, 1_000), (1_000, 10_000), (5_000, 10_000)), ((10, 100), (20, 200)))  # hosts x waiting
Figures = dict[str, float]


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Return the seconds of the quickest of `runs`, the collector off meanwhile, as in the scheduler's passes."""
    best = float("inf")
    for _ in range(runs):
        gc.collect()
        gc.disable()
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
        gc.enable()
    return best


def measure_cycles(runs: int) -> dict[str, Figures]:
    """Return the seconds of a first full pass over empty hosts, and what follows from it."""
    seconds: Figures = {}
    decisions: Figures = {}
    for hosts, waiting in SIZES:
        name = f"{hosts} x {waiting}"
        snapshot = big_world(hosts, waiting)
        freeze()
        result = plan(snapshot, EPOCH)
        seconds[name] = round(best_of(runs, partial(plan, snapshot, EPOCH)), 4)
        decisions[name] = round(waiting / seconds[name])
        say(f"{name}: {len(result.placements)} placed, {len(result.waiting)} wait; {seconds[name]} s")
    return {"decisions_per_second": decisions, "full_pass_seconds": seconds}


def measure_release(runs: int) -> Figures:
    """Return the milliseconds of a pass after one release with an unchanged backlog, and of an advisor's answer."""
    snapshot = after_release(*SIZES[1])
    limited = with_limits(snapshot)
    mine = snapshot.queue[0]._replace(id="mine")
    state = IncrementalState(snapshot)
    state.serve(EPOCH)
    freeze()
    figures = {
        "pass": best_of(runs, lambda: plan(snapshot, EPOCH, look_ahead=0)),
        "pass_with_estimates": best_of(runs, lambda: plan(snapshot, EPOCH)),
        "pass_with_estimates_and_time_limits": best_of(runs, lambda: plan(limited, EPOCH)),
        "advice": best_of(runs, lambda: advise_on(state.copy(), [mine], EPOCH)),
    }
    figures = {name: round(1000 * seconds, 1) for name, seconds in figures.items()}
    say(f"after one release at {SIZES[1][0]} x {SIZES[1][1]}: {figures} ms")
    return figures


def measure_gangs(runs: int, traces: int) -> Figures:
    """Return what passes take where a fifth of the requests are for clusters, against the same without them.

    `decision_ratio` is of the sessions placed or explained in a second, each member counted; `request_ratio` counts a
    cluster once; `release_ratio` is of a pass after one release; `bound_broken` counts late starts.
    """
    world, full = big_world(*SIZES[1]), after_release(*SIZES[1])
    gangs, full_gangs = with_clusters(world), with_clusters(full)
    freeze()
    seconds = [best_of(runs, partial(plan, each, EPOCH)) for each in (world, gangs)]
    released = [best_of(runs, partial(plan, each, EPOCH, look_ahead=0)) for each in (full, full_gangs)]
    members = sum(request.members for request in gangs.queue) / len(world.queue)
    placed = len(plan(gangs, EPOCH, look_ahead=0).placements)
    ratio = seconds[0] / seconds[1]
    figures = {"decision_ratio": members * ratio, "request_ratio": ratio, "release_ratio": released[1] / released[0]}
    figures = {name: round(value, 3) for name, value in figures.items()}
    figures["bound_broken"] = bound_broken(traces)
    say(f"a fifth of the requests for clusters of 2 to 64: {figures}, {placed} members placed")
    return figures


def measure_memory() -> float:
    """Return the MiB that the largest snapshot takes."""
    tracemalloc.start()
    snapshot = big_world(*SIZES[-1])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    mib = round(size / 2**20, 1)
    say(f"a snapshot of {len(snapshot.hosts)} hosts and {len(snapshot.queue)} waiting takes {mib} MiB")
    return mib


def measure_allocation(trace: Trace, seeds: int, *, in_clusters: bool = False) -> tuple[Figures, dict[str, object]]:
    """Return by policy what part of all GPUs, in percent, is allocated once the arrived demand is 100 % of them.

    Apart from it, what was asked for meanwhile of models of GPU that no host has, of which nothing is allocated.
    `in_clusters`: sessions with several GPUs are clusters of one GPU a member.
    """
    shares: Figures = {}
    missing_percent = 0.0
    for placement_policy in PlacementPolicyName:
        allocations = [
            trace.allocation(placement_policy, seed, in_clusters=in_clusters) for seed in range(1, seeds + 1)
        ]
        missing_percent = sum(each.missing_percent for each in allocations) / seeds  # the same under each policy
        found = [each.percent for each in allocations]
        name = placement_policy.value
        shares[name] = round(sum(found) / len(found), 2)
        kind = f"{name}, several GPUs as clusters" if in_clusters else name
        say(f"{kind}: {shares[name]} % allocated ({min(found):.2f} to {max(found):.2f}, {seeds} seeds)")
    models = missing_models(trace.hosts, trace.pods)
    apart = {"sessions": sum(models.values()), "asked_percent": round(missing_percent, 2), "by_models": models}
    return shares, apart


def measure_closed_loop(trace: Trace, limit: int) -> dict[str, Figures]:
    """Return by policy the outcome of the first `limit` sessions on a part of the hosts, with departures."""
    met: dict[str, Figures] = {}
    for placement_policy in PlacementPolicyName:
        outcome = simulate(*trace.crowded(placement_policy, limit))
        met[placement_policy.value] = {
            "mean_wait_minutes": round(outcome.mean_wait.total_seconds() / 60, 1),
            "p95_wait_minutes": round(outcome.p95_wait.total_seconds() / 60, 1),
            "utilisation_percent": round(100 * outcome.utilisation, 2),
            "fragmentation_percent": round(100 * outcome.fragmentation, 2),
            "fairness": round(outcome.fairness, 3),
            "never_started": outcome.never_started,
        }
        say(f"{placement_policy.value} with departures: {met[placement_policy.value]}")
    return met


def measure_estimates(trace: Trace, limit: int) -> Figures:
    """Return the accuracy of the estimates that the sessions of the closed loop got as they joined.

    By limits, and by what is learned from the past.
    """
    crowded = trace.crowded(PlacementPolicyName.PACK, limit)
    found = calibrate(*crowded) | learned_estimates(*crowded)
    say(f"estimates: {found}")
    return found


def measure_scale() -> Figures:
    """Return the times at the size of a large site, each in a process of its own, the last one on PostgreSQL."""
    done = subprocess.run([sys.executable, "-m", "bench.scale"], check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    say(f"{scale.HOSTS} x {scale.WAITING}: {figures}")
    found = measure_database(scale.HOSTS, scale.WAITING, say)
    names = ("db_pass_after_release_seconds", "db_pass_after_release_worst_seconds")
    return figures | {name: found[name] for name in names}


def freeze() -> None:
    """Exempt the snapshot from garbage collection."""
    gc.collect()
    gc.freeze()


def say(text: str) -> None:
    """Print progress."""
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", flush=True)


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=Path, help="hosts: sn, cpu_milli, memory_mib, gpu, model")
    parser.add_argument("--pods", type=Path, help="sessions: name, cpu_milli, memory_mib, num_gpu, gpu_milli, ...")
    parser.add_argument("--seeds", type=int, default=size(10, 1), help="orders of arrival for the allocation")
    parser.add_argument("--runs", type=int, default=size(5, 1), help="runs of which the quickest counts")
    parser.add_argument("--traces", type=int, default=size(2000, 20), help="random traces with clusters for the bound")
    parser.add_argument("--loop", type=int, default=size(2000, 100), help="sessions in the closed loop")
    parser.add_argument("--no-scale", action="store_true", help="leave out 100,000 waiting on 5,000 hosts")
    options = parser.parse_args()
    if (options.nodes is None) != (options.pods is None):
        parser.error("--nodes and --pods go together")
    trace = Trace(*read_trace(options.nodes, options.pods)) if options.nodes else synthetic_trace()
    if said := missing_text(trace.hosts, trace.pods):
        say(said)
    calibration = partial(sum, range(10**6))
    figures: dict[str, object] = {"calibration_s": round(best_of(20, calibration), 5), "snapshot_mib": measure_memory()}
    figures |= measure_cycles(options.runs)
    figures["release_milliseconds"] = measure_release(options.runs)
    figures["gangs"] = measure_gangs(options.runs, options.traces)
    figures["openb_allocation"], figures["openb_missing_models"] = measure_allocation(trace, options.seeds)
    figures["openb_gangs_allocation"] = measure_allocation(trace, options.seeds, in_clusters=True)[0]
    figures["openb_closed_loop"] = measure_closed_loop(trace, options.loop)
    figures["estimates"] = measure_estimates(trace, options.loop)
    figures |= measure_database(*SIZES[1], say)
    if not options.no_scale:
        figures["scale_100k"] = measure_scale()
    figures["load_averages"] = os.getloadavg()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
