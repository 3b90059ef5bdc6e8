"""Files of an SFTP server, over the pipes of a program such as `ssh -s HOST sftp`."""

import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntFlag
from typing import Final, Self

from gpuplatform_client.sync.sftp_packets import (
    END_OF_FILE,
    MODE,
    NO_SUCH_FILE,
    TIMES,
    Packet,
    SftpConnection,
    SftpError,
    SftpStatus,
    packed,
)

PIECE_BYTES: Final = 32 * 1024
IN_FLIGHT: Final = 64  # requests of one file without a response
POSIX_RENAME: Final = b"posix-rename@openssh.com"  # which replaces what is at the target


class OpenFor(IntFlag):
    """How a file is opened."""

    READ = 1
    WRITE = 2
    CREATE = 8
    TRUNCATE = 16


class SftpClient:
    """A connection, for one thread. Paths are text; bytes that are no UTF-8 are kept as surrogates."""

    def __init__(self, command: Sequence[str]) -> None:
        self._connection = SftpConnection(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def real_path(self, path: str) -> str:
        """Return the absolute path; links are followed where the server does."""
        body = self._connection.request(Packet.REALPATH, packed(path), Packet.NAME)
        body.number()
        return os.fsdecode(body.text())

    def status(self, path: str) -> SftpStatus | None:
        """Return what is at a path; None for nothing."""
        try:
            return self._connection.request(Packet.LSTAT, packed(path), Packet.ATTRS).status()
        except SftpError as error:
            if error.code == NO_SUCH_FILE:
                return None
            raise

    def entries(self, path: str) -> Iterator[tuple[str, SftpStatus]]:
        """Yield name and status of what is in a directory. Names that are none are the server's fault, and refused."""
        handle = self._open(Packet.OPENDIR, packed(path))
        try:
            while True:
                try:
                    body = self._connection.request(Packet.READDIR, packed(handle), Packet.NAME)
                except SftpError as error:
                    if error.code == END_OF_FILE:
                        return
                    raise
                for _ in range(body.number()):
                    name, _line, status = body.text(), body.text(), body.status()
                    if name in (b".", b".."):
                        continue
                    if not name or b"/" in name or b"\0" in name:
                        raise self._connection.ended(f"The server names a file {name!r}.")
                    yield os.fsdecode(name), status
        finally:
            self._connection.done(Packet.CLOSE, packed(handle))

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a file in pieces."""
        handle = self._open(Packet.OPEN, packed(path) + struct.pack(">II", OpenFor.READ, 0))
        asked: deque[int] = deque()
        try:
            next_offset, is_whole = offset, False
            while not is_whole or asked:
                while not is_whole and len(asked) < IN_FLIGHT:
                    asked.append(
                        self._connection.ask(Packet.READ, packed(handle) + struct.pack(">QI", next_offset, PIECE_BYTES))
                    )
                    next_offset += PIECE_BYTES
                try:
                    piece = self._connection.answer(asked.popleft(), Packet.DATA).text()
                except SftpError as error:
                    if error.code != END_OF_FILE:
                        raise
                    is_whole = True
                    continue
                offset += len(piece)
                if not is_whole:
                    yield piece
                if len(piece) < PIECE_BYTES and not is_whole:  # what was asked for behind it begins too late
                    for request in asked:
                        self._connection.response(request)
                    asked.clear()
                    next_offset = offset
        finally:
            for request in asked:
                self._connection.response(request)
            self._connection.done(Packet.CLOSE, packed(handle))

    def write(self, path: str, pieces: Iterable[bytes], offset: int, mode: int, mtime: int) -> None:
        """Write pieces of at most PIECE_BYTES from an offset on, and set permissions and time of the file."""
        flags = OpenFor.WRITE | OpenFor.CREATE | (OpenFor(0) if offset else OpenFor.TRUNCATE)
        handle = self._open(Packet.OPEN, packed(path) + struct.pack(">III", flags, MODE, 0o600))
        asked: deque[int] = deque()
        try:
            for piece in pieces:
                asked.append(
                    self._connection.ask(Packet.WRITE, packed(handle) + struct.pack(">Q", offset) + packed(piece))
                )
                offset += len(piece)
                if len(asked) >= IN_FLIGHT:
                    self._connection.check(asked.popleft())
            while asked:
                self._connection.check(asked.popleft())
            self._connection.done(
                Packet.FSETSTAT, packed(handle) + struct.pack(">IIII", MODE | TIMES, mode, mtime, mtime)
            )
        finally:
            for request in asked:
                self._connection.response(request)
            self._connection.done(Packet.CLOSE, packed(handle))

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        self._connection.done(Packet.MKDIR, packed(path) + struct.pack(">I", 0))

    def remove(self, path: str) -> None:
        """Remove what is no directory; of a link, the link."""
        self._connection.done(Packet.REMOVE, packed(path))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._connection.done(Packet.RMDIR, packed(path))

    def replace(self, source: str, target: str) -> None:
        """Move a file to where another may be, at once if the server can."""
        if POSIX_RENAME in self._connection.extensions:
            self._connection.done(Packet.EXTENDED, packed(POSIX_RENAME) + packed(source) + packed(target))
            return
        if self.status(target):
            self.remove(target)
        self._connection.done(Packet.RENAME, packed(source) + packed(target))

    def _open(self, kind: Packet, body: bytes) -> bytes:
        return self._connection.request(kind, body, Packet.HANDLE).text()
