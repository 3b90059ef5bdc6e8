"""The ASGI extension `http.response.zerocopysend` for uvicorn's connections, by sendfile(2).

https://asgi.readthedocs.io/en/latest/extensions.html#zero-copy-send. uvloop has no `loop.sendfile`, so a duplicate of
the connection's descriptor is written to. sendfile runs in a thread, since it blocks while the file is read from its
disk or over NFS; a thread is given back when the client does not read.
"""

import asyncio
import os
import select
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from proxy.http.asgi import Application, Message, Receive, Scope, Send

EXTENSION: Final = "http.response.zerocopysend"
CALL_BYTES: Final = 4 * 2**20  # of one system call
TURN_SECONDS: Final = 0.1  # of one file in a thread, before another file's turn
WRITABLE_TIMEOUT_MS: Final = 25  # for which a thread waits for the client to read; then the event loop waits
STALL_SECONDS: Final = 600  # after which a client that reads nothing is disconnected

_threads: Final = ThreadPoolExecutor(8, "zero-copy")


class UvicornConnection(Protocol):
    """What is needed of uvicorn's protocol class."""

    transport: asyncio.Transport
    flow: FlowControl


class ZeroCopyApplication:
    """ASGI middleware around the application of one uvicorn connection, that adds the extension."""

    def __init__(self, application: Application, connection: UvicornConnection) -> None:
        self._application = application
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and take its messages of the extension's type."""
        cycle: RequestResponseCycle = cast(Any, send).__self__

        async def send_or_copy(message: Message) -> None:
            if message["type"] != EXTENSION:
                await send(message)
                return
            await self._copy(cycle, message)
            await send({"type": "http.response.body", "body": b"", "more_body": message.get("more_body", False)})

        scope["extensions"] = {**scope.get("extensions", {}), EXTENSION: {}}
        await self._application(scope, receive, send_or_copy)

    async def _copy(self, cycle: RequestResponseCycle, message: Message) -> None:
        """Send a part of a file. Raises OSError if the client disconnects or the file ends early."""
        file, offset = message["file"], message.get("offset", 0)
        file = file if isinstance(file, int) else file.fileno()
        count = message["count"] if "count" in message else os.fstat(file).st_size - offset
        if not cycle.response_started or cycle.chunked_encoding or count > cycle.expected_content_length:
            raise RuntimeError(f"{EXTENSION} needs a response with a Content-Length of at least {count} left")
        if cycle.disconnected:
            raise ConnectionResetError
        await self._flushed()
        try:
            await _Copy(self._connection.transport, file, offset, count).run()
        except OSError:
            self._connection.transport.abort()
            raise
        cycle.expected_content_length -= count

    async def _flushed(self) -> None:
        """Wait until the transport has sent what was written to it. Raises OSError if the client disconnects."""
        transport = self._connection.transport
        transport.set_write_buffer_limits(high=0)
        try:
            while transport.get_write_buffer_size() and not transport.is_closing():
                await asyncio.sleep(0)
                await self._connection.flow.drain()
        finally:
            transport.set_write_buffer_limits()
        if transport.is_closing():
            raise ConnectionResetError


class _Copy:
    """A part of a file on its way to a connection; has descriptors of its own, which a running thread keeps open."""

    def __init__(self, transport: asyncio.Transport, file: int, offset: int, count: int) -> None:
        self._socket = os.dup(transport.get_extra_info("socket").fileno())
        self._file = os.dup(file)
        self._writable_poll = select.poll()
        self._writable_poll.register(self._socket, select.POLLOUT)
        self._offset = offset
        self._left = count
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Future[bool] | None = None

    async def run(self) -> None:
        """Send all of it."""
        try:
            while self._left:
                self._turn = self._loop.run_in_executor(_threads, self._send_some)
                if not await asyncio.shield(self._turn):
                    await self._writable()
        finally:
            if self._turn and not self._turn.done():  # this task was cancelled
                self._turn.add_done_callback(self._close)
            else:
                self._close(self._turn)

    def _send_some(self) -> bool:
        """Send until all is sent or the turn is over: return True. Return False if the client does not read."""
        end = time.monotonic() + TURN_SECONDS
        while self._left and time.monotonic() < end:
            try:
                sent = os.sendfile(self._socket, self._file, self._offset, min(self._left, CALL_BYTES))
            except BlockingIOError:
                if not self._writable_poll.poll(WRITABLE_TIMEOUT_MS):
                    return False
                continue
            if not sent:
                raise OSError("The file is shorter than it was.")
            self._offset += sent
            self._left -= sent
        return True

    async def _writable(self) -> None:
        """Wait until the connection takes more. Raises TimeoutError, an OSError, after STALL_SECONDS."""
        ready = asyncio.Event()
        self._loop.add_writer(self._socket, ready.set)
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await ready.wait()
        finally:
            self._loop.remove_writer(self._socket)

    def _close(self, turn: "asyncio.Future[bool] | None") -> None:
        """Close the descriptors once no thread uses them."""
        if turn and not turn.cancelled():
            turn.exception()  # marks it as retrieved, or asyncio would log it
        os.close(self._socket)
        os.close(self._file)
