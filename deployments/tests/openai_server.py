"""A tiny server of OpenAI's chat API: it answers each message with its words, one event each, and the usage last."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.app_servers import app_server
from tests.wait import SECONDS

MODEL: Final = "parrot"
ENDLESS: Final = "endless"  # the message whose answer does not end by itself
KEEP_ALIVE_SECONDS: Final = 0.02


@dataclass
class Seen:
    """What a server has got."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)  # by lower-case names
    hung_up: threading.Event = field(default_factory=threading.Event)  # a client has left an endless answer


@contextmanager
def openai_server(prefix: str = "") -> Iterator[tuple[int, Seen]]:
    """Serve during the block, which gets the port and what comes; answers begin with `prefix`."""
    seen = Seen()

    class Handler(_Handler):
        """Of this server."""

    Handler.seen, Handler.prefix = seen, prefix
    with app_server(Handler) as port:
        yield port, seen


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: Seen
    prefix: str

    def do_GET(self) -> None:
        """Name the model, or say that there is nothing."""
        self.seen.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/v1/models":
            self._send({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "me"}]})
        else:
            self._send({"error": {"message": f"There is no {self.path}."}}, 404)

    def do_POST(self) -> None:
        """Answer the last message."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.bodies.append(body)
        self.seen.headers.append({name.lower(): value for name, value in self.headers.items()})
        message = body["messages"][-1]["content"]
        if message.startswith("status "):
            self._send({"error": {"message": "As you asked."}}, int(message.split()[1]))
            return
        words = f"{self.prefix}{message}".split(" ")
        if body.get("stream"):
            self._stream(words, is_endless=message == ENDLESS)
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": " ".join(words)}, "finish_reason": "stop"}
        self._send(_completion("chat.completion", choices=[choice], usage=_usage(words)))

    def _stream(self, words: list[str], *, is_endless: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, word in enumerate(words):
            delta = {"content": f"{' ' if number else ''}{word}"}
            self._event(json.dumps(_completion("chat.completion.chunk", choices=[{"index": 0, "delta": delta}])))
        if is_endless:
            self._until_hung_up()
            return
        self._event(json.dumps(_completion("chat.completion.chunk", choices=[], usage=_usage(words))))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _until_hung_up(self) -> None:
        with suppress(OSError):
            for _ in range(int(SECONDS / KEEP_ALIVE_SECONDS)):
                self._chunk(b": it goes on\n\n")
                threading.Event().wait(KEEP_ALIVE_SECONDS)
            return
        self.seen.hung_up.set()
        self.close_connection = True

    def _event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _completion(kind: str, **parts: object) -> dict[str, Any]:
    return {"id": "c1", "object": kind, "created": 1, "model": MODEL, **parts}


def _usage(words: list[str]) -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 3 + len(words)}
