"""Limits of request bodies: by size, time and number per address, before Django sees any of them."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from django.conf import settings

from gpuplatform.serving.request_bodies import BODIES_PER_ADDRESS, RequestBodies
from proxy.counters import LocalCounters
from tests.live import LiveServer
from tests.wait import SECONDS

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]

TOO_LARGE = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1


@contextmanager
def connection(server: LiveServer) -> Iterator[socket.socket]:
    """Yield a connection to the server."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as client:
        yield client


def head(target: str, *lines: str) -> bytes:
    """Return the header section of a POST."""
    return "\r\n".join([f"POST {target} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def response_of(client: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    parts = []
    while part := client.recv(2**16):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("target", "length", "body"),
    [
        ("/healthz", 10**15, b""),
        ("/accounts/sign-in/", TOO_LARGE, b"x" * TOO_LARGE),
        ("/api/v1/auth/token/", TOO_LARGE, b""),
        ("/nowhere", TOO_LARGE, b""),
    ],
)
def test_a_body_announced_too_large_is_refused(server: LiveServer, target: str, length: int, body: bytes) -> None:
    with connection(server) as client:
        client.sendall(head(target, f"Content-Length: {length}") + body)
        client.shutdown(socket.SHUT_WR)
        response = response_of(client)
    assert response.startswith(b"HTTP/1.1 413")
    assert (b'"detail": ' in response) is target.startswith("/api/")


def test_a_chunked_body_is_refused_once_too_large(server: LiveServer) -> None:
    with connection(server) as client:
        client.sendall(head("/accounts/sign-in/", "Transfer-Encoding: chunked"))
        client.sendall(b"%x\r\n%b\r\n" % (TOO_LARGE, b"x" * TOO_LARGE))
        client.shutdown(socket.SHUT_WR)
        assert response_of(client).startswith(b"HTTP/1.1 413")


def test_many_slow_bodies_of_an_address_are_refused(server: LiveServer) -> None:
    slow = head("/accounts/sign-in/", "Content-Length: 1000") + b"x"
    with ExitStack() as stack:
        for _ in range(BODIES_PER_ADDRESS):
            client = stack.enter_context(connection(server))
            # The server says so once the application asks for the body, that is once it counts.
            client.sendall(slow.replace(b"Content-Length", b"Expect: 100-continue\r\nContent-Length", 1))
            assert client.recv(2**16).startswith(b"HTTP/1.1 100")
        with connection(server) as client:
            client.sendall(slow)
            client.shutdown(socket.SHUT_WR)
            assert response_of(client).startswith(b"HTTP/1.1 429")
        with connection(server) as client:
            client.sendall(b"GET /accounts/sign-in/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert response_of(client).startswith(b"HTTP/1.1 200")
    with connection(server) as client:  # the others are gone
        client.sendall(head("/accounts/sign-in/", "Content-Length: 0", "Connection: close"))
        assert response_of(client).startswith(b"HTTP/1.1 403")  # without a token of the form


async def test_a_body_that_stalls_is_given_up() -> None:
    sent: list[dict[str, object]] = []

    async def application(scope: object, receive: object, send: object) -> None:
        await receive()  # type: ignore[operator]  # ASGI's callables

    async def receive() -> dict[str, object]:
        if sent:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"5")], "client": ("192.0.2.1", 1)}
    counters = LocalCounters()
    limited = RequestBodies(application, counters, seconds=0.01)
    await limited(scope, receive, send)
    assert sent[0]["status"] == 408
    assert counters.count("body 192.0.2.1") == 0
