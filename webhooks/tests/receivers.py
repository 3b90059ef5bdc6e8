"""Receivers of webhooks for tests: a real HTTP server, and a sender that sends nothing."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from webhooks.delivery.sender import SendOutcome


@dataclass
class Receiver:
    """An HTTP server on 127.0.0.1 that collects what it is sent."""

    url: str = ""
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    response: bytes = b""
    held: threading.Event | None = None  # before it responds, it waits for this
    received: list[tuple[Mapping[str, str], str]] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
            if receiver.held:
                receiver.held.wait(60)
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(receiver.response)))
            self.end_headers()
            with suppress(ConnectionError):  # its client reads no more than the beginning
                self.wfile.write(receiver.response)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.held:
            receiver.held.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class FakeSender:
    """Takes the place of WebhookSender: has an outcome for each URL, and remembers what it was given."""

    outcomes: dict[str, SendOutcome] = field(default_factory=dict)  # by URL; others succeed
    sent: list[tuple[str, Mapping[str, str], str]] = field(default_factory=list)

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def post(self, url: str, headers: Mapping[str, str], body: str) -> Future[SendOutcome]:
        """Return the outcome at once."""
        self.sent.append((url, headers, body))
        done: Future[SendOutcome] = Future()
        done.set_result(self.outcomes.get(url, SendOutcome(status=204)))
        return done
