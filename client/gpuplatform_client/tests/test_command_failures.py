"""How commands end where the platform, this machine or who reads the output fails, against a server of this test."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection as AsyncServerConnection
from websockets.asyncio.server import serve as serve_async
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from gpuplatform_client import commands
from gpuplatform_client.cli.app import app
from gpuplatform_client.cli.sessions.run import _exit_code
from gpuplatform_client.commands import CommandBrokenError, RemoteCommand
from gpuplatform_client.models.platform import ComputeSession
from gpuplatform_client.tests.test_failures import responding
from tests.live import ROOT
from tests.wait import SECONDS

pytestmark = pytest.mark.loopback

SESSION_ID = "a" * 16
RUNNING = {
    **{"id": SESSION_ID, "name": "train", "owner": "user@example.org", "status": "RUNNING", "image": "team/torch:1"},
    **{"resource_group": "lab", "cpu": 1, "memory": 2**30, "created_at": "2026-01-01T00:00:00Z", "kind": "batch"},
}
FOLDER = {"id": "b" * 16, "name": "data"}


class Platform:
    """What the commands ask, and responses to that: a session is launched, and then its token is valid no more."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys: list[str | None] = []  # of what was posted

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Send the response to a request."""
        handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        self.asked.append(handler.path)
        self.keys += [handler.headers["Idempotency-Key"]] if handler.command == "POST" else []
        path = handler.path.partition("?")[0]
        status, body = self._answer(handler.command, path.removeprefix("/api/v1/"))
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(json.dumps(body).encode())

    def _answer(self, method: str, path: str) -> tuple[int, Any]:
        if method == "POST":
            return 201, RUNNING if path.endswith("/terminate/") else [RUNNING]
        if path.endswith("/follow/"):
            return 401, {"detail": "The token has expired."}
        listed = {"folders/": [FOLDER], "sessions/": [RUNNING]}.get(path, [])
        return 200, {"results": listed, "next": None}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    asked = Platform()
    with responding(asked.respond) as url:
        for name, value in {"HOME": str(tmp_path), "GPUPLATFORM_URL": url, "GPUPLATFORM_TOKEN": "token"}.items():
            monkeypatch.setenv(name, value)
        yield asked


def test_a_session_that_is_lost_was_started(platform: Platform) -> None:
    done = CliRunner().invoke(app, ["run", "--image", "torch", "--", "true"])
    assert (done.exit_code, "The token has expired." in done.stderr) == (255, True)
    assert f"gpuplatform logs -f {SESSION_ID}" in done.stderr


def test_an_interrupted_launch_is_undone(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    send = httpx.Client.send

    def interrupted(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        response = send(client, request, **options)
        if request.method == "POST" and len(platform.keys) == 1:
            raise KeyboardInterrupt
        return response

    monkeypatch.setattr(httpx.Client, "send", interrupted)
    done = CliRunner().invoke(app, ["run", "--image", "torch", "--detach", "--", "true"])
    assert (done.exit_code, done.stdout) == (130, "")
    assert platform.asked[-1].endswith(f"/{SESSION_ID}/terminate/")
    first, second, _ = platform.keys
    assert first == second


def test_live_sessions_are_listed_without_reading_all(platform: Platform) -> None:
    for arguments, expected in ((["ls"], True), (["ls", "--all"], False)):
        assert SESSION_ID in CliRunner().invoke(app, arguments).stdout
        assert ("tab=running" in platform.asked[-1]) is expected


@pytest.mark.parametrize("place", ["folder:data/numbers", "folder://data/numbers"])
def test_a_file_that_cannot_be_written_is_named(place: str, platform: Platform, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["cp", place, str(tmp_path / "no" / "numbers")])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True)
    assert str(tmp_path / "no") in done.stderr
    assert "No such file or directory" in done.stderr


@contextmanager
def commanding(text: bytes) -> Iterator[str]:
    """Yield the address of a platform at which every command prints this and ends at once."""

    def show_session(socket: ServerConnection, request: Request) -> Response | None:
        if request.path.startswith("/ws/"):
            return None
        body = json.dumps(RUNNING).encode()
        return Response(200, "OK", Headers({"Content-Length": str(len(body)), "Connection": "close"}), body)

    def command(socket: ServerConnection) -> None:
        socket.recv()
        if text:
            socket.send(b"\x01" + text)
        socket.send(json.dumps({"exit": 7}))

    with serve(command, "127.0.0.1", 0, process_request=show_session) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(("text", "expected"), [(b"", 7), (b"read by nobody", 1)])
def test_a_command_ends_beside_endless_input(tmp_path: Path, text: bytes, expected: int) -> None:
    read, written = os.pipe()
    os.close(read)
    with commanding(text) as url, Path("/dev/zero").open("rb") as zeros, os.fdopen(written, "wb", 0) as output:
        environment = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "client"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, "-m", "gpuplatform_client", "exec", SESSION_ID, "--", "true"],
            env={**environment, "GPUPLATFORM_URL": url, "GPUPLATFORM_TOKEN": "token"},
            stdin=zeros,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    assert (done.returncode, done.stderr) == (expected, b"")


def test_a_socket_closed_before_the_command_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(socket: AsyncServerConnection) -> None:
        await socket.close(4404, "There is no such running session.")

    async def connect_late(*args: Any, **options: Any) -> Any:
        socket = await connect(*args, **options)
        await socket.wait_closed()
        return socket

    async def run() -> int:
        async with serve_async(close, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await RemoteCommand(url, "token", SESSION_ID, lambda data, is_error: None).run("true", _nothing())

    monkeypatch.setattr(commands, "connect", connect_late)
    with pytest.raises(CommandBrokenError, match="no such running session"):
        asyncio.run(run())


async def _nothing() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (((0, "CONTAINER_EXITED"), (0, "CONTAINER_EXITED")), 0),
        (((1, "CONTAINER_EXITED"), (143, "CLUSTER_ENDED")), 1),
        (((143, "CLUSTER_ENDED"), (3, "CONTAINER_EXITED")), 3),
        (((2, "CONTAINER_EXITED"), (3, "CONTAINER_EXITED")), 3),
    ],
)
def test_a_cluster_exits_as_the_member_that_failed(ends: tuple[tuple[int, str], ...], code: int) -> None:
    members = [
        {"id": SESSION_ID, "name": f"sub{rank}", "status": "ERROR", "reason": reason, "exit_code": exit_code}
        for rank, (exit_code, reason) in enumerate(ends)
    ]
    cluster = {"size": 2, "members": members}
    assert _exit_code(ComputeSession.model_validate(RUNNING | {"exit_code": ends[0][0], "cluster": cluster})) == code
