"""Clusters: the start of MEMBERS against as many containers of the bare engine, and the path between two hosts.

launch_ms: API call sent -> all members are RUNNING
raw_ms:    a network, and as often create + start, at once

launch_ratio_one_host divides the medians, of rounds that take turns. launch_ratio_two_hosts does so for two engines
side by side on this machine, with half of the members and a network on each. throughput_ratio and latency_added_us
compare TCP between members on two hosts with TCP between the hosts themselves, which are namespaces on one bridge, by
the medians of rounds that take turns. Prints one JSON object as its last line.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from bench.cluster_path import path_figures
from bench.common import EVERY_SECONDS, ApiUser, BareEngine, load, timed
from bench.shared_platform import SANDBOXES
from bench.sizes import size
from operations import embedded
from resources.amounts.units import MIB
from tests.far_machine import FarMachine, far_machine
from tests.platform import ROOT, Platform, running_platform
from tests.wait import until
from tests.workers import host_worker

MEMBERS: Final = size(8, 2)
CORES: Final = MEMBERS  # of each host
POOL: Final = size(SANDBOXES, MEMBERS)
FAR: Final = "bench-far"  # the second host
SHAPE: Final = {"memory": 256 * MIB, "shared_memory": 64 * MIB, "fgpu": "0"}
WARM_UP_ROUNDS: Final = size(2, 0)
WAIT_SECONDS: Final = 60


class ClusterUser(ApiUser):
    """Starts and ends clusters, and watches their members."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform)
        self._members = psycopg.connect(embedded.database_url(platform.var_dir), autocommit=True)
        self._members.execute("UPDATE accounts_resourcepolicy SET max_sessions = NULL, cpu = NULL, memory = NULL")

    def launch(self, hosts: int) -> str:
        """Return the id of a cluster all of whose members are RUNNING, on so many hosts, which they fill."""
        body = {"image": self.image, **SHAPE, "cpu": hosts * CORES // MEMBERS, "cluster": {"size": MEMBERS}}
        (session,) = self.post("/sessions/", body)
        self._wait(session["id"], "RUNNING")
        return str(session["id"])

    def end(self, session: str) -> None:
        """End the cluster."""
        self.terminate(session)
        self._wait(session, "TERMINATED")

    def _wait(self, session: str, status: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        query = "SELECT count(*) FROM compute_session WHERE cluster_id = %s AND status = %s"
        while self._members.execute(query, (session, status)).fetchone() != (MEMBERS,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"cluster {session} did not become {status}")
            time.sleep(EVERY_SECONDS)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=size(15, 2))
    rounds = parser.parse_args().rounds
    figures: dict[str, Any] = path_figures()
    settings = {"COMPUTE_SANDBOX_POOL": str(POOL), "COMPUTE_HOST_CPU": str(CORES)}
    with (
        far_machine() as machine,
        running_platform(
            ROOT / "var" / "bench-cluster", COMPUTE_CLUSTER_ADDRESS=machine.near_address, **settings
        ) as platform,
    ):
        user = ClusterUser(platform)
        near = BareEngine(user.image, platform.host_name, POOL)
        launch_ms, raw_ms = medians(user, [near], rounds)
        figures |= {"launch_ms": launch_ms, "raw_ms": raw_ms, "launch_ratio_one_host": round(launch_ms / raw_ms, 2)}
        machine.take_image(user.image)
        with second_host(platform, machine):
            far = BareEngine(user.image, FAR, POOL, machine.engine_url)
            launch_ms, raw_ms = medians(user, [near, far], rounds)
        figures |= {"launch_two_hosts_ms": launch_ms, "raw_two_hosts_ms": raw_ms}
        figures["launch_ratio_two_hosts"] = round(launch_ms / raw_ms, 2)
    sys.stdout.write(json.dumps(figures | {"members": MEMBERS, "rounds": rounds, "load": load()}) + "\n")


@contextmanager
def second_host(platform: Platform, machine: FarMachine) -> Iterator[None]:
    """Have a host of the platform on the machine until the block ends."""
    settings = platform.environment | {
        "COMPUTE_DOCKER_URL": machine.engine_url,
        "COMPUTE_CLUSTER_ADDRESS": machine.address,
        "COMPUTE_HOST_NAME": FAR,
        "COMPUTE_SIMULATED_GPUS": "",
        "COMPUTE_DISK_RESERVE": "100m",
    }
    with host_worker(FAR, on=machine.beside_engine, **settings):
        until(lambda: bool(platform.rows("SELECT 1 FROM resources_host WHERE name = %s AND status = 'READY'", FAR)))
        yield


def medians(user: ClusterUser, engines: Sequence[BareEngine], rounds: int) -> list[float]:
    """Return how many milliseconds a cluster over these engines takes to start, and what it takes them without us."""
    taken = []
    for number in range(WARM_UP_ROUNDS + rounds):
        settle(engines)
        launch_ms = by_platform(user, len(engines))
        settle(engines)
        raw_ms = by_engines(engines, f"bench-cluster-{number}")
        sys.stderr.write(f"round {number}, {len(engines)} hosts: launch_ms {launch_ms:.0f}, raw_ms {raw_ms:.0f}\n")
        taken.append((launch_ms, raw_ms))
    return [round(statistics.median(values), 1) for values in zip(*taken[WARM_UP_ROUNDS:], strict=True)]


def settle(engines: Sequence[BareEngine]) -> None:
    """Return when the platform leaves all of them alone."""
    for engine in engines:
        engine.settle()


def by_platform(user: ClusterUser, hosts: int) -> float:
    """Return how many milliseconds a cluster takes to start."""
    started: list[str] = []
    taken = timed(lambda: started.append(user.launch(hosts)))
    user.end(started[0])
    return taken


def by_engines(engines: Sequence[BareEngine], network: str) -> float:
    """Return how many milliseconds a network on each engine and as many containers at once take to start."""
    containers: list[tuple[BareEngine, str]] = []
    with ThreadPoolExecutor(MEMBERS) as pool:

        def start() -> None:
            list(pool.map(lambda engine: engine.make_network(network), engines))
            where = [*engines] * (MEMBERS // len(engines))
            containers.extend(zip(where, pool.map(BareEngine.launch, where), strict=True))

        taken = timed(start)
        list(pool.map(lambda each: each[0].end(each[1]), containers))
    for engine in engines:
        engine.remove_network(network)
    return taken


if __name__ == "__main__":
    main()
