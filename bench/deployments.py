"""`make bench-deployments`: requests spread over replicas, by ours and by nginx with `least_conn`, in one run.

One process of each on a core of its own, where there are enough cores also the upstream and the load; ours verifies a
token and counts what it serves. Every round measures 1, 2 and 4 replicas with each, in another order: 32 connections
for requests a second, one for what a request takes longer than straight to the upstream. Then memory of open streams,
and how long requests wait for a deployment that sleeps. The last line is one JSON object of medians over the rounds.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.common import load
from bench.deployment_servers import EVENT, REPLICAS, SECRET, STREAMS, label
from bench.deployment_wake import wake_figures
from bench.proxy import PROGRAMS, Servers, Way, free_ports, nginx_command, wrk
from bench.proxy_servers import HOST, SITE
from bench.sizes import size
from operations.machine import system_packages
from proxy.limits import raise_open_file_limit

FOLDER: Final = Path("var/bench-deployments")
CONNECTIONS: Final = 32
BUSY: Final = f"{CONNECTIONS} connections"
ALONE: Final = "1 connection"
STREAM_COUNT: Final = size(1000, 100)
WARM_STREAMS: Final = 50
STREAM_SECONDS: Final = 60
BODY: Final = "r" * 474
UPSTREAM: Final = 'server {{ listen {host}:{port}; location / {{ return 200 "{body}"; }} }}'
BALANCED: Final = """
  upstream replicas{number} {{ least_conn; {servers} keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {host}:{port};
    proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;
    proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header Connection '';
    proxy_set_header Authorization '';
    location / {{ proxy_pass http://replicas{number}; }}
  }}
"""
Figures = dict[str, float]


def core(number: int) -> list[str]:
    """Return what pins a command to a core; all but the first core are shared where there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[min(number, len(cores) - 1)])]


@contextmanager
def running() -> Iterator[tuple[dict[str, Way], int, dict[str, int]]]:
    """Yield the ways to the replicas, by who balances and their number, the port of ours, and the process ids."""
    ours, streams, *ports = free_ports(2 + max(REPLICAS) + len(REPLICAS))
    upstreams, balanced = ports[: max(REPLICAS)], dict(zip(REPLICAS, ports[max(REPLICAS) :], strict=True))
    servers, folder = Servers(), FOLDER.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        listening = "\n".join(UPSTREAM.format(host=HOST, port=port, body=BODY) for port in upstreams)
        servers.start([*core(1), *nginx_command(folder, "upstream", listening)], upstreams[0])
        servers.start([*core(1), sys.executable, "-m", "bench.deployment_servers", "streams", str(streams)], streams)
        balancing = "\n".join(
            BALANCED.format(
                host=HOST,
                port=port,
                number=number,
                servers=" ".join(f"server {HOST}:{upstream};" for upstream in upstreams[:number]),
            )
            for number, port in balanced.items()
        )
        nginx = servers.start([*core(0), *nginx_command(folder, "balancer", balancing)], balanced[REPLICAS[0]])
        command = [sys.executable, "-m", "bench.deployment_servers", "ours", *map(str, (ours, *upstreams, streams))]
        process = servers.start([*core(0), *command], ours)
        ways = {"direct": Way(upstreams[0], 0)}
        for number, port in balanced.items():
            ways[f"nginx {number}"] = Way(port, 0)
            ways[f"ours {number}"] = Way(ours, 0, f"{label(number)}.{SITE.apps_domain}:{ours}")
        yield ways, ours, {"ours": process, "nginx": nginx}
    finally:
        servers.stop()


def measure(way: Way, process: int | None, seconds: int) -> dict[str, Figures]:
    """Return what one way does with many connections, and with one; and the CPU time of a request in the process."""
    headers, prefix = [f"Authorization: Bearer {SECRET}"], core(2)
    before = cpu_seconds(process) if process else 0.0
    busy = wrk(way, "/", CONNECTIONS, seconds, headers, prefix)
    if process:
        busy["cpu_us"] = (cpu_seconds(process) - before) * 1e6 / (busy["rps"] * seconds)
    return {BUSY: busy, ALONE: wrk(way, "/", 1, seconds, headers, prefix)}


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and its children, who all run."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ticks = 0
    for each in (str(process), *children):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system time
    return ticks / os.sysconf("SC_CLK_TCK")


async def bytes_of_a_stream(port: int, process: int) -> float:
    """Return how much memory of the process a further open stream takes."""
    raise_open_file_limit()
    opened = [await open_stream(port) for _ in range(WARM_STREAMS)]
    before = memory_of(process)
    async with asyncio.timeout(STREAM_SECONDS):
        opened += [await open_stream(port) for _ in range(STREAM_COUNT)]
    taken = memory_of(process) - before
    for _, writer in opened:
        writer.transport.abort()
    return taken / STREAM_COUNT


async def open_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection over which a stream has begun."""
    reader, writer = await asyncio.open_connection(HOST, port)
    host = f"{STREAMS}.{SITE.apps_domain}:{port}"
    writer.write(f"POST /v1/chat HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode())
    await reader.readuntil(EVENT)
    return reader, writer


def memory_of(process: int) -> int:
    """Return the bytes of a process that no other has."""
    found = re.search(r"^Private_Dirty:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def ratio(rounds: Sequence[dict[str, dict[str, Figures]]], number: int, key: str, one: str, other: str) -> float:
    """Return the median of the rounds' ratios of a figure at so many replicas."""
    found = [each[f"{one} {number}"][BUSY][key] / each[f"{other} {number}"][BUSY][key] for each in rounds]
    return round(statistics.median(found), 2)


def summary(rounds: Sequence[dict[str, dict[str, Figures]]], stream_bytes: float) -> dict[str, object]:
    """Return medians by way, the rounds' ratios to nginx, and what ours adds to the time of a request."""
    figures = {
        way: {
            how: {key: round(statistics.median(each[way][how][key] for each in rounds), 1) for key in measured}
            for how, measured in rounds[0][way].items()
        }
        for way in rounds[0]
    }
    ratios = {str(number): ratio(rounds, number, "rps", "ours", "nginx") for number in REPLICAS}
    cpu_ratios = {str(number): ratio(rounds, number, "cpu_us", "nginx", "ours") for number in REPLICAS}
    added = {
        name: round(
            statistics.median(each[f"{name} 2"][ALONE]["p50_us"] - each["direct"][ALONE]["p50_us"] for each in rounds)
            / 1000,
            3,
        )
        for name in ("ours", "nginx")
    }
    return {
        "requests_ratio_to_nginx": ratios,
        "requests_ratio_by_cpu_time": cpu_ratios,  # what the ratio is where each has a core that nobody else uses
        "added_p50_ms": added["ours"],
        "nginx_added_p50_ms": added["nginx"],
        "bytes_per_stream": round(stream_bytes),
        "figures": figures,
        "streams": STREAM_COUNT,
        "rounds": len(rounds),
        "cores": len(os.sched_getaffinity(0)),
        "load": load(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=size(5, 1))
    parser.add_argument("--seconds", type=int, default=size(3, 1))
    options = parser.parse_args()
    system_packages.ensure(PROGRAMS, print)
    rounds: list[dict[str, dict[str, Figures]]] = []
    with running() as (ways, port, processes):
        stream_bytes = asyncio.run(bytes_of_a_stream(port, processes["ours"]))
        for number in range(options.rounds):
            order = random.sample(list(ways), len(ways))
            rounds.append(
                {name: measure(ways[name], processes.get(name.split()[0]), options.seconds) for name in order}
            )
            print(f"round {number + 1}: {json.dumps(rounds[-1])}", flush=True)
    print(json.dumps(summary(rounds, stream_bytes) | wake_figures()))


if __name__ == "__main__":
    main()
