"""Ports for servers that tests start, and ports where nobody listens."""

import os
import secrets
import socket
from pathlib import Path
from typing import Final

FIRST: Final = 12_000  # beyond those that tests give to apps
MIN_COUNT: Final = 10_240  # ports to choose from, where the kernel's own begin lower than usual
PROCESSES: Final = 16  # test processes at a time that take their ports from different ones
KERNELS_OWN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has, and that nobody takes before its server is up.

    The kernel gives no such port to a connection or to a server that asks for any, and no call here gives it twice,
    not in another test process either: each takes every sixteenth port.
    """
    count = max(MIN_COUNT, int(KERNELS_OWN.read_text().split()[0]) - FIRST)
    while True:
        port = FIRST + secrets.randbelow(count // PROCESSES) * PROCESSES + process_number() % PROCESSES
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def process_number() -> int:
    """Return this test process's number among those that run at once, from 1 (tests/plugin.py); 1 outside pytest."""
    _, _, number = Path(os.environ.get("COMPUTE_VAR_DIR", "")).name.partition("-")
    return int(number or "1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
