"""Asks from within a member of a cluster which other members answer: all of it between them works, then."""

import ctypes
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Collection
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.cluster_network.devices import namespace_of

CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
DISCARD: Final = 9  # the port asked; that a connection is refused is answer enough
ANSWER_SECONDS: Final = 0.3
REACHED: Final = (0, errno.ECONNREFUSED)

Target = tuple[str, int]  # address and port

_libc = ctypes.CDLL(None, use_errno=True)


def silent(container: ContainerFiles, addresses: Collection[IPv4Address]) -> list[IPv4Address]:
    """Return those of the addresses that do not answer to the container. Raises OSError, also where it has ended."""
    found: list[IPv4Address] = []
    failures: list[OSError] = []

    def enter_and_ask() -> None:
        try:
            with Path(namespace).open("rb") as file:
                if _libc.setns(file.fileno(), CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            found.extend(IPv4Address(each) for each, _ in unanswered([(str(each), DISCARD) for each in addresses]))
        except OSError as error:
            failures.append(error)

    with namespace_of(container) as namespace:
        thread = threading.Thread(target=enter_and_ask, name="reachability")
        thread.start()
        thread.join()
    if failures:
        raise failures[0]
    return found


def unanswered(targets: Collection[Target]) -> list[Target]:
    """Connect to all at once, from the network of this thread; return those that have not answered in time."""
    asked: dict[int, socket.socket] = {}
    silent_ones: dict[int, Target] = {}
    poller = select.poll()
    pending = 0
    for address, port in targets:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        asked[connection.fileno()] = connection
        if (error := connection.connect_ex((address, port))) == errno.EINPROGRESS:
            poller.register(connection, select.POLLOUT)
            pending += 1
        if error not in REACHED:
            silent_ones[connection.fileno()] = address, port
    until = time.monotonic() + ANSWER_SECONDS
    while pending and (left := until - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            pending -= 1
            if asked[descriptor].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in REACHED:
                del silent_ones[descriptor]
    for connection in asked.values():
        connection.close()
    return list(silent_ones.values())
