"""The address by which other hosts reach this one."""

import fcntl
import os
import socket
import struct
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection

ELSEWHERE: Final = (socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")  # of documentation: never sent to
DISCARD: Final = 9
SIOCGIFADDR: Final = 0x8915  # linux/sockios.h
NOBODYS: Final = "127.0.0.1"


def for_clusters() -> str:
    """Return COMPUTE_CLUSTER_ADDRESS, else the address by which this process reaches PostgreSQL.

    Where that is on this machine it is the address of the default route, or of nobody's use without one.
    """
    return settings.COMPUTE_CLUSTER_ADDRESS or _to_database() or _of_default_route() or NOBODYS


def device_of(address: str) -> str:
    """Return the network device whose first address this is; "" where there is none, or the address is of IPv6."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""


def mtu_of(device: str) -> int:
    """Return how large packets of a network device may be. Raises OSError."""
    return int(Path("/sys/class/net", device, "mtu").read_text())


def _to_database() -> str:
    connection.ensure_connection()
    with closing(socket.socket(fileno=os.dup(connection.connection.fileno()))) as opened:
        if opened.family not in (socket.AF_INET, socket.AF_INET6):
            return ""
        address = ip_address(opened.getsockname()[0].partition("%")[0])
    return "" if address.is_loopback else str(getattr(address, "ipv4_mapped", None) or address)


def _of_default_route() -> str:
    for family, target in ELSEWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, DISCARD))
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return ""
