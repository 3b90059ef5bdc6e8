"""When a terminal connects again, against a server that closes as the platform does."""

import asyncio
from collections.abc import Sequence

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from gpuplatform_client import terminal
from gpuplatform_client.errors import SignInRequiredError, UnreachableServerError
from gpuplatform_client.terminal import RemoteTerminal, TerminalEnd

pytestmark = pytest.mark.loopback
HOST_RESTARTS, SILENT, SESSION_GONE = 4502, 4408, 4404


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PAUSE_SECONDS", 0.0)


def attached(closes: Sequence[tuple[bytes, int]], refusals: Sequence[int] = ()) -> tuple[TerminalEnd, bytes, int]:
    """Attach to a server that sends a text and closes, once for each connection; return end, output and the rest.

    The first handshakes are refused with the statuses `refusals`.
    """
    left, output, refusing = list(closes), bytearray(), list(refusals)

    def refuse(socket: ServerConnection, request: Request) -> Response | None:
        return socket.respond(refusing.pop(0), "") if refusing else None

    async def connection(socket: ServerConnection) -> None:
        text, code = left.pop(0)
        if text:
            await socket.send(text)
        await socket.close(code)

    async def attach() -> TerminalEnd:
        async with serve(connection, "127.0.0.1", 0, process_request=refuse) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            return await RemoteTerminal(url, "token", "a" * 16, output.extend, (80, 24)).run()

    return asyncio.run(attach()), bytes(output), len(left)


def test_it_connects_again_until_a_final_code() -> None:
    end, output, left = attached([(b"one ", HOST_RESTARTS), (b"two ", SILENT), (b"three", SESSION_GONE), (b"", 1000)])
    assert (end.code, output, left) == (SESSION_GONE, b"one two three", 1)


def test_a_host_that_gives_no_output_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "RECONNECT_SECONDS", -1.0)
    with pytest.raises(UnreachableServerError, match="does not respond"):
        attached([(b"", HOST_RESTARTS), (b"late", 1000)])


def test_what_a_proxy_refuses_meanwhile_is_asked_again() -> None:
    end, output, left = attached([(b"back", SESSION_GONE)], refusals=[502, 503])
    assert (end.code, output, left) == (SESSION_GONE, b"back", 0)
    with pytest.raises(SignInRequiredError):
        attached([(b"late", 1000)], refusals=[401])


@pytest.mark.parametrize("when", ["before", "while it connects"])
def test_it_can_be_left_without_a_connection(when: str) -> None:
    async def connection(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async def leave_attached() -> TerminalEnd:
        async def leave(socket: ServerConnection, request: Request) -> None:
            await attached_terminal.leave()

        async with serve(connection, "127.0.0.1", 0, process_request=leave) as server, asyncio.timeout(10):
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            attached_terminal = RemoteTerminal(url, "token", "a" * 16, lambda _: None, (80, 24))
            if when == "before":
                await attached_terminal.leave()
            return await attached_terminal.run()

    assert asyncio.run(leave_attached()).code == terminal.SHELL_EXITED
