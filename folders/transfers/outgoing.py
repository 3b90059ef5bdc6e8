"""The bodies of downloads: a part of a file, and a stream that is made while it is sent."""

import os
import threading
from collections.abc import Callable, Generator
from typing import Final

from folders.files.downloads.byte_range import ByteRange
from folders.transfers.handover import OutgoingBody
from folders.transfers.threads import in_thread
from proxy.http.asgi import Scope, Send
from proxy.listener.zero_copy import EXTENSION

CHUNK_BYTES: Final = 256 * 1024


class FileBody(OutgoingBody):
    """A part of an open file, which `close` closes. Sent without copying it where the server can."""

    def __init__(self, opened: int, part: ByteRange) -> None:
        self._opened = opened
        self._part = part
        self.length_bytes = part.length
        self._guard = threading.Lock()

    async def give(self, scope: Scope, send: Send) -> None:
        """Send the part. Raises EOFError if the file has become shorter."""
        if self._part.length > CHUNK_BYTES and EXTENSION in scope.get("extensions", {}):
            part = {"file": self._opened, "offset": self._part.start, "count": self._part.length}
            await send({"type": EXTENSION, **part})
            return
        offset = self._part.start
        while offset < self._part.end:
            data = await in_thread(self._read, offset, min(CHUNK_BYTES, self._part.end - offset))
            if not data:
                raise EOFError("The file became shorter while it was sent.")
            offset += len(data)
            await send({"type": "http.response.body", "body": data, "more_body": offset < self._part.end})
        if not self._part.length:
            await send({"type": "http.response.body", "body": b""})

    def _read(self, offset: int, count: int) -> bytes:
        with self._guard:
            return os.pread(self._opened, count, offset)

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            os.close(self._opened)


class StreamBody(OutgoingBody):
    """What a generator yields, which runs in threads, one step at a time."""

    length_bytes = None

    def __init__(self, chunks: Generator[bytes, None, None], release: Callable[[], None]) -> None:
        """`release` is called at the end, in a thread."""
        self._chunks = chunks
        self._release = release
        self._guard = threading.Lock()

    async def give(self, scope: Scope, send: Send) -> None:
        """Send all chunks. What the generator raises cuts the connection, so that the client can tell."""
        while (chunk := await in_thread(self._next)) is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _next(self) -> bytes | None:
        with self._guard:
            return next(self._chunks, None)

    def close(self) -> None:
        """End the generator, and release what it used."""
        with self._guard:
            self._chunks.close()
            self._release()
