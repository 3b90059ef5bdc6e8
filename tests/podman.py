"""An engine that answers as Podman 4.3 does when it is asked what it is."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

ANSWER = {
    "Components": [{"Name": "Podman Engine", "Version": "4.3.1"}, {"Name": "Conmon", "Version": "2.1.6"}],
    "Version": "4.3.1",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.24",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the address of a client that it would begin with is empty."""


@contextmanager
def answering_podman(folder: Path) -> Iterator[str]:
    """Serve below the folder; give the URL."""
    with UnixStreamServer(str(folder / "podman.sock"), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"unix://{folder}/podman.sock"
        server.shutdown()
        thread.join()
