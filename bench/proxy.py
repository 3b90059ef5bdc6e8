"""`make bench-proxy`: the app proxy against configurable-http-proxy and nginx, all in one run on this machine.

Every round measures every proxy in another order: small pages on 32 connections, 10 MB bodies on 4, and websockets, 1
and 50 at once. Only ours verify a cookie. The last line is one JSON object of medians over the rounds, with `ratios` as
the medians of the rounds' own ratios.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.common import load
from bench.proxy_servers import HOST, SITE, grant, keys
from bench.sizes import size
from operations.machine import system_packages

PEER: Final = Path("bench/chp")
FOLDER: Final = Path("var/bench-proxy")
PROGRAMS: Final = {"nginx": "nginx-light", "wrk": "wrk"}
NAMES: Final = ("direct", "ours", "chp", "nginx")
SMALL_BYTES: Final = 474
LARGE_BYTES: Final = 10 * 2**20
START_SECONDS: Final = 20
UNITS: Final = {"us": 1.0, "ms": 1e3, "s": 1e6}
SIZES: Final = {"B": 1 / 2**20, "KB": 1 / 2**10, "MB": 1.0, "GB": 2.0**10}
BASE: Final = """
worker_processes 1; daemon off; pid {folder}/{name}.pid; error_log {folder}/{name}.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000;
  client_body_temp_path {folder}/{name}-body; proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-f; uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;
  {body}
}}
"""
UPSTREAM: Final = "server {{ listen {host}:{port}; root {folder}/pages; }}"
PROXY: Final = """
  upstream page {{ server {host}:{http}; keepalive 64; keepalive_requests 100000000; }}
  map $http_upgrade $switch {{ default upgrade; '' ''; }}
  server {{
    listen {host}:{port};
    proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;
    proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header Connection $switch;
    proxy_set_header Upgrade $http_upgrade;
    location / {{ proxy_pass http://page; }}
    location /echo {{ proxy_pass http://{host}:{echo}; }}
  }}
"""


@dataclass(frozen=True, slots=True)
class Way:
    """How the two upstreams are reached: ports, and the hosts and cookies to name."""

    http_port: int
    echo_port: int
    http_host: str = HOST
    echo_host: str = HOST
    http_cookie: str = "a=b"
    echo_cookie: str = "a=b"


class Servers:
    """The processes of the benchmark."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Sequence[str], port: int, environment: dict[str, str] | None = None) -> int:
        """Start a program and return its process id once it listens."""
        process = subprocess.Popen(arguments, env=os.environ | (environment or {}), start_new_session=True)
        self._running.append(process)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    return process.pid
            time.sleep(0.05)
        raise SystemExit(f"{arguments[0]} does not listen on port {port}")

    def stop(self) -> None:
        """End all of them."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            process.wait(START_SECONDS)


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@contextmanager
def running() -> Iterator[dict[str, Way]]:
    """Yield the way to the upstreams by each proxy."""
    http, echo, ours, chp, nginx, api = free_ports(6)
    servers = Servers()
    folder = FOLDER.resolve()
    write_pages(folder / "pages")
    try:
        servers.start(nginx_command(folder, "upstream", UPSTREAM.format(host=HOST, port=http, folder=folder)), http)
        for role, port in (("echo", echo), ("ours", ours)):
            servers.start([sys.executable, "-m", "bench.proxy_servers", role, *map(str, (port, http, echo))], port)
        body = PROXY.format(host=HOST, port=nginx, http=http, echo=echo)
        servers.start(nginx_command(folder, "proxy", body), nginx)
        start_peer(servers, folder, chp, api, http, echo)
        yield {
            "direct": Way(http, echo),
            "ours": our_way(ours),
            "chp": Way(chp, chp),
            "nginx": Way(nginx, nginx),
        }
    finally:
        servers.stop()


def our_way(port: int) -> Way:
    """Return the way by one of our servers, with a cookie for each of the two endpoints."""
    labels = ("http--bench", "echo--bench")
    hosts = [f"{label}.{SITE.apps_domain}:{port}" for label in labels]
    cookies = [f"a=b; {SITE.cookie()}={grant(label).to_cookie(keys())}" for label in labels]
    return Way(port, port, *hosts, *cookies)


def write_pages(folder: Path) -> None:
    """Write what the upstream serves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small").write_bytes(b"s" * SMALL_BYTES)
    (folder / "large").write_bytes(os.urandom(LARGE_BYTES))
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # nginx's workers are another user


def nginx_command(folder: Path, name: str, body: str) -> list[str]:
    """Write a configuration and return the command that runs it."""
    path = folder / f"{name}.conf"
    path.write_text(BASE.format(folder=folder, name=name, body=body))
    return [system_packages.program("nginx") or "nginx", "-c", str(path), "-e", str(folder / f"{name}.log")]


def start_peer(servers: Servers, folder: Path, port: int, api: int, http: int, echo: int) -> None:
    """Install configurable-http-proxy as its lock file says, run it and tell it the two upstreams."""
    home = folder / "chp"
    home.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PEER / name, home)
    if not (home / "node_modules").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=home, check=True)
    command = ["node", str(home / "node_modules/configurable-http-proxy/bin/configurable-http-proxy")]
    command += ["--ip", HOST, "--port", str(port), "--api-ip", HOST, "--api-port", str(api), "--log-level", "error"]
    servers.start([*command, "--default-target", f"http://{HOST}:{http}"], port, {"CONFIGPROXY_AUTH_TOKEN": "bench"})
    target = json.dumps({"target": f"http://{HOST}:{echo}"}).encode()
    headers = {"Authorization": "token bench"}
    route = urllib.request.Request(f"http://{HOST}:{api}/api/routes/echo", target, headers, method="POST")
    urllib.request.urlopen(route, timeout=START_SECONDS).close()


def measure(way: Way, seconds: int) -> dict[str, float]:
    """Return all figures of one proxy in one round."""
    small = wrk(way, "/small", 32, seconds)
    large = wrk(way, "/large", 4, seconds)
    return {
        "rps": small["rps"],
        "p50_us": small["p50_us"],
        "p99_us": small["p99_us"],
        "mb_per_s": large["mb_per_s"],
        "ws1_per_s": talk(way, 1, seconds),
        "ws50_per_s": talk(way, 50, seconds),
    }


def wrk(
    way: Way, path: str, connections: int, seconds: int, headers: Sequence[str] = (), prefix: Sequence[str] = ()
) -> dict[str, float]:
    """Return what wrk says of requests for a page with these headers. Raises SystemExit for any answer but 200.

    `prefix` is what wrk is run by.
    """
    command = [*prefix, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
    command += ["-H", f"Host: {way.http_host}", "-H", f"Cookie: {way.http_cookie}"]
    command += [each for header in headers for each in ("-H", header)]
    command.append(f"http://{HOST}:{way.http_port}{path}")
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"answers went wrong:\n{said}")
    return {
        "rps": float(found(r"Requests/sec:\s+([\d.]+)", said)[1]),
        "p50_us": scaled(found(r"50%\s+([\d.]+)(us|ms|s)", said), UNITS),
        "p99_us": scaled(found(r"99%\s+([\d.]+)(us|ms|s)", said), UNITS),
        "mb_per_s": scaled(found(r"Transfer/sec:\s+([\d.]+)(GB|MB|KB|B)", said), SIZES),
    }


def found(pattern: str, said: str) -> re.Match[str]:
    """Return the match that must be there."""
    match = re.search(pattern, said)
    if match is None:
        raise SystemExit(f"wrk says nothing of {pattern}:\n{said}")
    return match


def scaled(match: re.Match[str], units: dict[str, float]) -> float:
    """Return a figure in the unit that counts 1."""
    return float(match[1]) * units[match[2]]


def talk(way: Way, connections: int, seconds: int) -> float:
    """Return a websocket's round trips a second."""
    arguments = [str(way.echo_port), str(connections), str(seconds), way.echo_host, "/echo", way.echo_cookie]
    command = [sys.executable, "-m", "bench.proxy_load", *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, object]:
    """Return medians by proxy, and those of the rounds' ratios to configurable-http-proxy and nginx."""
    figures = {
        name: {key: round(statistics.median(each[name][key] for each in rounds), 1) for key in rounds[0][name]}
        for name in NAMES
    }
    ratios = {
        f"ours/{peer}": {
            key: round(statistics.median(each["ours"][key] / each[peer][key] for each in rounds), 2)
            for key in ("rps", "mb_per_s", "ws1_per_s", "ws50_per_s")
        }
        for peer in ("chp", "nginx")
    }
    return {**figures, "ratios": ratios, "rounds": len(rounds), "load": load()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=size(5, 1))
    parser.add_argument("--seconds", type=int, default=size(2, 1))
    options = parser.parse_args()
    system_packages.ensure(PROGRAMS, print)
    FOLDER.mkdir(parents=True, exist_ok=True)
    rounds: list[dict[str, dict[str, float]]] = []
    with running() as ways:
        for number in range(options.rounds):
            order = random.sample(NAMES, len(NAMES))
            rounds.append({name: measure(ways[name], options.seconds) for name in order})
            print(f"round {number + 1}: {json.dumps(rounds[-1])}", flush=True)
    print(json.dumps(summary(rounds)))


if __name__ == "__main__":
    main()
