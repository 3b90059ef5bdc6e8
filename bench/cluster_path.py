"""TCP between two members of a cluster on two hosts, against TCP between these hosts: namespaces on one bridge."""

import socket
import statistics
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.sizes import size
from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.cluster_network import devices
from hostworker.privileged.cluster_network.network import ClusterNetwork
from tests.namespaces import Namespace, namespaces

NETWORK: Final = ClusterNetwork.of("100.127.250.0/24")
NAMES: Final = ("main1", "sub1")
HOSTS: Final = ("198.18.7.1", "198.18.7.2")
PORT: Final = 7000
ROUNDS: Final = size(10, 2)
STREAM_SECONDS: Final = size(2.0, 0.2)
TRIPS: Final = size(3000, 100)
CHUNK: Final = bytes(1 << 20)
MESSAGE: Final = bytes(64)


def path_figures() -> dict[str, Any]:
    """Return throughput in Gbit/s and latency in microseconds of both ways, and how they compare."""
    with TemporaryDirectory() as folder, namespaces(5) as (cable, *both):
        hosts, members = both[:2], both[2:]
        names = Path(folder, "hosts")
        names.write_text("127.0.0.1\tlocalhost\n")
        _connect(cable, hosts, members, names)
        ways = {
            "plain": (hosts, HOSTS[1]),
            "cluster": (members, str(NETWORK.member(2))),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        trips: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, ((near, far), address) in ways.items():
                rates[name].append(_measure(near, far, address, _swallow, _stream))
                trips[name].append(_measure(near, far, address, _echo, _ping))
    figures = {f"{name}_gbit": round(statistics.median(values), 2) for name, values in rates.items()}
    figures |= {f"{name}_us": round(statistics.median(values), 1) for name, values in trips.items()}
    return figures | {
        "throughput_ratio": round(figures["cluster_gbit"] / figures["plain_gbit"], 2),
        "latency_added_us": round(figures["cluster_us"] - figures["plain_us"], 1),
    }


def _connect(cable: Namespace, hosts: list[Namespace], members: list[Namespace], names: Path) -> None:
    """Have both hosts on one bridge, and a member of one cluster on each."""
    cable.run("ip", "link", "add", "lan", "type", "bridge")
    cable.run("ip", "link", "set", "lan", "up")
    for number, host in enumerate(hosts):
        end = f"host{number}"
        cable.run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        cable.run("ip", "link", "set", end, "master", "lan", "up")
        host.run("ip", "address", "add", f"{HOSTS[number]}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
    for number, (host, member) in enumerate(zip(hosts, members, strict=True)):
        elsewhere = {NETWORK.member(2 - number): ip_address(HOSTS[1 - number])}
        host.do(devices.hold, NETWORK, ip_address(HOSTS[number]), elsewhere, "bench")
        files = ContainerFiles(container_id="", pid=member.pid, hostname_path=names, hosts_path=names)
        host.do(devices.join, files, NETWORK, NAMES, number + 1)


def _measure(
    near: Namespace,
    far: Namespace,
    address: str,
    serve: Callable[[socket.socket], None],
    use: Callable[[socket.socket], float],
) -> float:
    """Return the figure of one connection from the near namespace to a server in the far one."""
    with far.do(lambda: socket.create_server((address, PORT))) as listening:
        server = threading.Thread(target=lambda: serve(listening.accept()[0]))
        server.start()
        with near.do(lambda: socket.create_connection((address, PORT))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            figure = use(connection)
        server.join()
    return figure


def _swallow(connection: socket.socket) -> None:
    buffer = bytearray(len(CHUNK))
    with connection:
        while connection.recv_into(buffer):
            pass


def _stream(connection: socket.socket) -> float:
    """Return Gbit/s."""
    sent, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < STREAM_SECONDS:
        connection.sendall(CHUNK)
        sent += len(CHUNK)
    return sent * 8 / passed / 1e9


def _echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while message := connection.recv(len(MESSAGE)):
            connection.sendall(message)


def _ping(connection: socket.socket) -> float:
    """Return the median round trip in microseconds."""
    trips = []
    for _ in range(TRIPS):
        begun = time.perf_counter()
        connection.sendall(MESSAGE)
        connection.recv(len(MESSAGE))
        trips.append(time.perf_counter() - begun)
    return statistics.median(trips) * 1e6
