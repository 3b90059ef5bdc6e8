"""The scheduler at the size of a large site, in memory and in a process of its own: prints one JSON object."""

import gc
import json
import resource
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from bench.sizes import size
from bench.worlds import after_release, big_world
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.types import EPOCH

HOSTS: Final = size(5_000, 20)
WAITING: Final = size(100_000, 500)
RELEASES: Final = size(5, 1)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes, the collector off, as in the scheduler's passes."""
    gc.collect()
    gc.disable()
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    gc.enable()
    return seconds


def main(hosts: int = HOSTS, waiting: int = WAITING) -> None:
    """Measure, and print the figures."""
    state = IncrementalState(big_world(hosts, waiting))
    gc.freeze()
    figures = {"first_pass_seconds": timed(lambda: state.serve(EPOCH))}
    state = IncrementalState(after_release(hosts, waiting))
    gc.freeze()
    state.serve(EPOCH)
    (group,) = state.cluster.groups.values()
    releases = []
    for session in list(group.running.values())[: 37 * RELEASES : 37]:
        state.update([session], [])
        releases.append(timed(lambda: state.serve(EPOCH)))
    figures["pass_after_release_seconds"] = min(releases)
    figures["estimate_seconds"] = timed(lambda: state.starts(EPOCH, LOOK_AHEAD))
    names = list(state.requests)[: waiting // 2]
    figures["cancel_half_seconds"] = timed(lambda: deque(map(state.remove, names), 0))
    figures = {name: round(seconds, 4) for name, seconds in figures.items()}
    figures["rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
