"""The body of an upload: written to its partial file while it arrives."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from folders.files.errors import FilesError, StorageFullError
from folders.files.partial import PartialFile
from folders.transfers.handover import ClientGoneError, IncomingBody, Outcome
from folders.transfers.threads import in_thread
from proxy.http.asgi import Receive
from restapi.problems import MEDIA_TYPE, problem_text

BLOCK_BYTES: Final = 2**20  # of one write; two blocks at most are in memory
CHECK_BYTES: Final = 64 * 2**20  # between two checks whether the upload may go on
IDLE_SECONDS: Final = 60  # after which a client that sends nothing loses the connection, and its lock on the upload
ALGORITHMS: Final = ("md5", "sha1", "sha256")
CHECKSUM_MISMATCH: Final = 460  # a status of tus


class UploadRefusedError(Exception):
    """The upload does not go on; the message is for the user."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.http_status = status


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the client says of the body that it sends: the name of an algorithm, and the digest."""

    algorithm: str
    digest: bytes


class UploadHandler(Protocol):
    """What the upload means; called in threads. Methods raise UploadRefusedError or FilesError to end the request."""

    def check(self) -> None:
        """Return if the upload may go on."""
        ...

    def finish(self, partial: PartialFile) -> Mapping[str, str]:
        """Put the whole file into its place; return headers of the response."""
        ...

    def fail(self) -> None:
        """Note that the request ended before the end of its body, or was refused."""
        ...


class UploadBody(IncomingBody):
    """Appends a request's body to a partial file, which it closes; at the end of the file, finishes the upload."""

    def __init__(
        self,
        partial: PartialFile,
        length_bytes: int,
        *,
        handler: UploadHandler,
        checksum: Checksum | None = None,
    ) -> None:
        """`length_bytes` is that of the whole file."""
        self._partial = partial
        self._begin = partial.size
        self._length = length_bytes
        self._handler = handler
        self._checksum = checksum
        self._digest = hashlib.new(checksum.algorithm, usedforsecurity=False) if checksum else None
        self._unchecked = 0  # bytes written since the last check

    async def take(self, receive: Receive) -> Outcome:
        """Write the body, and finish the upload if the file is whole by then."""
        try:
            return await self._take(receive)
        except ClientGoneError:
            await in_thread(self._handler.fail)
            raise
        except UploadRefusedError as error:
            refusal = _refusal(str(error), error.http_status)
        except TimeoutError:
            refusal = _refusal(f"Nothing was sent for {IDLE_SECONDS} seconds.", HTTPStatus.REQUEST_TIMEOUT)
        except FilesError as error:
            is_full = isinstance(error, StorageFullError)
            refusal = _refusal(
                str(error), HTTPStatus.INSUFFICIENT_STORAGE if is_full else HTTPStatus.SERVICE_UNAVAILABLE
            )
        await in_thread(self._handler.fail)
        return refusal

    async def _take(self, receive: Receive) -> Outcome:
        await self._write(receive)
        headers = {"Upload-Offset": str(self._partial.size)}
        if self._partial.size == self._length:
            headers |= await in_thread(self._handler.finish, self._partial)
        return Outcome(headers=headers)

    def close(self) -> None:
        """Close the partial file, so that another request may go on with it."""
        self._partial.close()

    async def _write(self, receive: Receive) -> None:
        """Write the body, all of it or, where its checksum is to match, nothing."""
        try:
            await self._append_blocks(receive)
            if (
                self._digest
                and self._checksum
                and not hmac.compare_digest(self._digest.digest(), self._checksum.digest)
            ):
                raise UploadRefusedError("The checksum does not match the bytes received.", CHECKSUM_MISMATCH)
        except BaseException:
            if self._checksum:
                await in_thread(self._partial.cut, self._begin)
            raise

    async def _append_blocks(self, receive: Receive) -> None:
        """Write each block in a thread while the next one arrives."""
        writing: asyncio.Future[None] | None = None
        left = self._length - self._begin
        try:
            async for block in _blocks(receive):
                left -= len(block)
                if left < 0:
                    raise UploadRefusedError("The body is longer than the file was said to be.", HTTPStatus.BAD_REQUEST)
                if writing:
                    await writing
                writing = in_thread(self._append, block)
        finally:
            if writing:
                await writing

    def _append(self, block: bytes) -> None:
        if self._digest:
            self._digest.update(block)
        self._partial.append(block)
        self._unchecked += len(block)
        if self._unchecked >= CHECK_BYTES:
            self._unchecked = 0
            self._partial.write_back()
            self._handler.check()


async def _blocks(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body in blocks of about BLOCK_BYTES. Raises ClientGoneError and TimeoutError behind the last one."""
    parts: list[bytes] = []
    size = 0
    error: Exception | None = None
    more = True
    while more:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                message = await receive()
        except TimeoutError as late:
            error, more = late, False
        else:
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if message["type"] == "http.disconnect":
                error = ClientGoneError()
        if size >= BLOCK_BYTES or (size and not more):
            yield b"".join(parts)
            parts, size = [], 0
    if error:
        raise error


def _refusal(detail: str, status: int) -> Outcome:
    """Return an error in the form of the API's."""
    return Outcome(status=status, headers={"Content-Type": MEDIA_TYPE}, body=problem_text(status, detail).encode())
