"""A launch that is given up while its request is under way, against a server that responds when it is told to."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from gpuplatform_client import AsyncSession
from tests.wait import SECONDS, eventually

pytestmark = pytest.mark.loopback

SESSION = {
    **{"id": "a" * 16, "name": "new", "owner": "user@example.org", "status": "PENDING", "image": "team/tool:1"},
    **{"resource_group": "lab", "cpu": 1, "memory": 2**30, "created_at": "2026-11-28T00:00:00Z"},
}


class SlowHandler(BaseHTTPRequestHandler):
    """Launches the session once `may_launch` is set."""

    posted: list[str] = []
    may_launch = Event()

    def do_GET(self) -> None:
        """Respond with no images."""
        self.respond(200, {"results": [], "next": None})

    def do_POST(self) -> None:
        """Record the path, and respond with the session."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.posted.append(self.path)
        is_launch = self.path == "/api/v1/sessions/"
        if is_launch:
            self.may_launch.wait(SECONDS)
        self.respond(201, [SESSION] if is_launch else SESSION)

    def respond(self, status: int, body: Any) -> None:
        """Send a body of JSON."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


async def test_what_was_asked_for_is_ended_all_the_same() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        session = AsyncSession.launch("team/tool:1", url=url, token="token")
        launching = asyncio.create_task(session.__aenter__())
        await eventually(lambda: SlowHandler.posted)
        launching.cancel()
        await asyncio.sleep(0)  # in which it hears of that
        SlowHandler.may_launch.set()
        with pytest.raises(asyncio.CancelledError):
            await launching
    finally:
        server.shutdown()
        server.server_close()
    assert SlowHandler.posted == ["/api/v1/sessions/", f"/api/v1/sessions/{SESSION['id']}/terminate/"]
