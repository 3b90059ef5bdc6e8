"""The terminal of a session over the platform's websocket: what a browser's terminal speaks, from this one."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gpuplatform_client.errors import BY_STATUS, ApiError, UnreachableServerError
from gpuplatform_client.http.retries import is_transient
from gpuplatform_client.http.transport import request_headers

SHELL_EXITED: Final = 1000  # close codes of the platform
SESSION_ENDED: Final = 4410
FINAL: Final = frozenset({SHELL_EXITED, 1008, 4401, 4404, SESSION_ENDED})  # others, as of a host's restart, are retried
MAX_UNCONFIRMED_BYTES: Final = 128 * 1024  # of input; the platform takes up to 512 KiB
RECONNECT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 1.0

WindowSize = tuple[int, int]  # columns, rows


@dataclass(frozen=True, slots=True)
class TerminalEnd:
    """Why a terminal ended."""

    code: int  # of the websocket
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the shell has ended by itself."""
        return self.code == SHELL_EXITED


class RemoteTerminal:
    """A terminal of a session. After a broken connection it connects again: the shell is tmux's, and goes on."""

    def __init__(self, url: str, token: str, session_id: str, write: Callable[[bytes], None], size: WindowSize) -> None:
        self._address = socket_address(url, session_id, "terminal")
        self._headers = request_headers(token)
        self._write = write
        self._size = size
        self._socket: ClientConnection | None = None
        self._unconfirmed = 0
        self._words = ""
        self._may_send = asyncio.Event()
        self._is_left = False
        self._served_at = 0.0  # by the loop's clock: when a connection that had output was last there

    async def run(self) -> TerminalEnd:
        """Copy output until the terminal ends. Raises ApiError and UnreachableServerError."""
        loop = asyncio.get_running_loop()
        self._served_at = loop.time()
        while not self._is_left:
            problem = "its host does not respond"
            try:
                async with connect(self._address, additional_headers=self._headers, max_size=None) as socket:
                    if (end := await self._serve(socket)) is not None:
                        return end
            except InvalidStatus as error:
                refused = refusal(error)
                if not is_transient(refused):
                    raise refused from error
                problem = str(refused)
            except (OSError, InvalidHandshake, TimeoutError) as error:
                problem = str(error)
            if loop.time() > self._served_at + RECONNECT_SECONDS:
                raise UnreachableServerError(f"The terminal cannot be reached: {problem}")
            await asyncio.sleep(PAUSE_SECONDS)
        return TerminalEnd(SHELL_EXITED)

    async def send(self, data: bytes) -> None:
        """Send input once the platform has taken enough of what was sent before; it is dropped without a connection."""
        await self._may_send.wait()
        if (socket := self._socket) is None:
            return
        self._unconfirmed += len(data)
        self._allow()
        with suppress(ConnectionClosed):
            await socket.send(data)

    async def resize(self, size: WindowSize) -> None:
        """Give the terminal the size of the window."""
        self._size = size
        await self._tell({"resize": list(size)})

    async def leave(self) -> None:
        """End the terminal, and leave what runs in it."""
        self._is_left = True
        if self._socket:
            await self._socket.close()

    async def _serve(self, socket: ClientConnection) -> TerminalEnd | None:
        """Copy output; return why the terminal ended, None where the connection broke."""
        if self._is_left:  # while it was connecting
            return None
        self._socket, self._unconfirmed = socket, 0
        self._allow()
        has_output = False
        try:
            await self.resize(self._size)
            async for message in socket:
                if isinstance(message, bytes):
                    has_output = True
                    self._write(message)
                    await self._tell({"ack": len(message)})
                else:
                    self._take(json.loads(message))
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            if has_output:
                self._served_at = asyncio.get_running_loop().time()
        code, reason = socket.close_code or 1006, self._words or socket.close_reason or ""
        is_final = self._is_left or code in FINAL
        return TerminalEnd(SHELL_EXITED if self._is_left else code, reason) if is_final else None

    def _take(self, message: dict[str, Any]) -> None:
        self._unconfirmed -= int(message.get("ack", 0))
        self._words = message.get("ended", self._words)
        self._allow()

    def _allow(self) -> None:
        if self._unconfirmed < MAX_UNCONFIRMED_BYTES:
            self._may_send.set()
        else:
            self._may_send.clear()

    async def _tell(self, message: dict[str, Any]) -> None:
        if self._socket:
            with suppress(ConnectionClosed):
                await self._socket.send(json.dumps(message))


async def copy_input(terminal: RemoteTerminal, read: Callable[[], Awaitable[bytes]], leave_key: bytes) -> None:
    """Send what is typed until its end, or until `leave_key`."""
    while data := await read():
        typed, key, _ = data.partition(leave_key)
        if typed:
            await terminal.send(typed)
        if key:
            break
    await terminal.leave()


def socket_address(url: str, session_id: str, kind: str) -> str:
    """Return the address of a session's websocket for that of the platform."""
    scheme, _, rest = url.rstrip("/").removesuffix("/api/v1").partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws/sessions/{session_id}/{kind}/"


def refusal(error: InvalidStatus) -> ApiError:
    """Return the error of a refused handshake."""
    response = error.response
    try:
        problem = json.loads(response.body or b"{}")
    except ValueError:
        problem = {}
    message = str(problem.get("detail") or f"{response.status_code} {response.reason_phrase}")
    return BY_STATUS.get(response.status_code, ApiError)(response.status_code, message)
