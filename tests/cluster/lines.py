"""A cable between a machine and the bridge that takes its time: frames are carried by hand."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.cluster.isolation import run

PACKET: Final = 263  # SOL_PACKET
WITH_HEADER: Final = 15  # PACKET_VNET_HDR: checksums and segments that the sender leaves to the device go along
ANY: Final = 3  # ETH_P_ALL
OWN: Final = 4  # PACKET_OUTGOING: what was sent here
FRAME_BYTES: Final = 1 << 17
IGNORE_ALL: Final = "8"  # arp_ignore: the devices are a cable, and no address is theirs
POLL_S: Final = 0.02


@contextmanager
def slow_line(cable: str, bridge: str, seconds: float) -> Iterator[None]:
    """Carry frames between a device that has no bridge and a bridge, each after so long, until the block ends."""
    near, far = f"n{cable}", f"f{cable}"
    run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
    try:
        run("ip", "link", "set", far, "master", bridge)
        for device in (cable, near):
            Path(f"/proc/sys/net/ipv4/conf/{device}/arp_ignore").write_text(IGNORE_ALL)
        for device in (near, far):
            run("ip", "link", "set", device, "up")
        is_over = threading.Event()
        carrier = threading.Thread(target=_carry, args=((cable, near), seconds, is_over), daemon=True)
        carrier.start()
        try:
            yield
        finally:
            is_over.set()
            carrier.join()
    finally:
        run("ip", "link", "delete", near)


def _carry(devices: tuple[str, str], seconds: float, is_over: threading.Event) -> None:
    first, second = (_opened(device) for device in devices)
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    with first, second:
        while not is_over.is_set():
            for source in select.select([first, second], [], [], POLL_S)[0]:
                frame, address = source.recvfrom(FRAME_BYTES)
                if address[2] != OWN:
                    waiting.append((time.monotonic() + seconds, second if source is first else first, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, sink, frame = waiting.popleft()
                with suppress(OSError):  # a device without room drops it
                    sink.send(frame)


def _opened(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANY))
    opened.setsockopt(PACKET, WITH_HEADER, 1)
    opened.bind((device, ANY))
    return opened
