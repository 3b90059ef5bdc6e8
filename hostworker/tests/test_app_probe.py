"""Asking an app whether it answers, with whatever may be at the other end."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from hostworker.app_processes import probe as app_probe
from hostworker.app_processes.probe import ProbeResult, probe
from tests.ports import free_port
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

Serve = Callable[[bytes], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that sends these bytes to the first who asks, and then nothing; return its port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    done = threading.Event()

    def start(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=serve_one, args=(listener, answer)))
        threads[-1].start()
        return int(listener.getsockname()[1])

    def serve_one(listener: socket.socket, answer: bytes) -> None:
        connection, _ = listener.accept()
        with connection:
            with suppress(ConnectionError):  # who asked leaves with the first line
                connection.recv(1000)
                for byte in answer:
                    connection.send(bytes([byte]))
            if answer != b"closed":
                done.wait(SECONDS)

    yield start
    done.set()
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ProbeResult.OK),
        (b"HTTP/1.0 302 Found\r\n\r\n", ProbeResult.OK),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", ProbeResult.OK),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", ProbeResult.ERROR),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", ProbeResult.NOT_HTTP),
        (b"closed", ProbeResult.NOT_HTTP),
    ],
)
def test_the_first_line_decides(
    serve: Serve, answer: bytes, expected: ProbeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", SECONDS)
    assert probe("127.0.0.1", serve(answer)) is expected


def test_nobody_there_is_distinguished_from_somebody_silent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", 0.2)
    silent = serve(b"")
    assert probe("127.0.0.1", silent) is ProbeResult.NO_RESPONSE
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", SECONDS)
    assert probe("127.0.0.1", free_port()) is ProbeResult.REFUSED


def test_a_server_that_drips_does_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        assert probe("127.0.0.1", int(listener.getsockname()[1])) is ProbeResult.NO_RESPONSE
        dripping.join()


def drip(listener: socket.socket) -> None:
    """Send a first line that never ends, until nobody listens."""
    connection, _ = listener.accept()
    with connection:
        for byte in itertools.chain(b"HTTP/1.1 200 O", itertools.repeat(ord("K"))):
            try:
                connection.send(bytes([byte]))
            except OSError:
                return
            time.sleep(0.1)
