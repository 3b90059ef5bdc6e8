"""SFTP version 3 (draft-ietf-secsh-filexfer-02) over the pipes of a program such as `ssh -s HOST sftp`."""

import os
import stat
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, Self

from gpuplatform_client.errors import ClientError

PIECE_BYTES: Final = 32 * 1024
IN_FLIGHT: Final = 64  # requests of one file without a response
MAX_PACKET_BYTES: Final = 2**20
END_SECONDS: Final = 5.0
POSIX_RENAME: Final = b"posix-rename@openssh.com"  # which replaces what is at the target


class Packet(IntEnum):
    """A kind of packet."""

    INIT = 1
    VERSION = 2
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSETSTAT = 10
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    RENAME = 18
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105
    EXTENDED = 200


class OpenFor(IntFlag):
    """How a file is opened."""

    READ = 1
    WRITE = 2
    CREATE = 8
    TRUNCATE = 16


OK: Final = 0
END_OF_FILE: Final = 1
NO_SUCH_FILE: Final = 2
SIZE, OWNER, MODE, TIMES, EXTENSIONS = 1, 2, 4, 8, 0x80000000  # which attributes there are


class SftpError(ClientError):
    """The server refused an operation."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SftpBrokenError(ClientError):
    """The connection is no more; why, ssh has said."""


@dataclass(frozen=True, slots=True)
class SftpStatus:
    """What is known of a file; a symbolic link as such. `mtime` in seconds."""

    size: int
    mode: int
    mtime: int

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory itself."""
        return stat.S_ISDIR(self.mode)


class SftpClient:
    """A connection, for one thread. Paths are text; bytes that are no UTF-8 are kept as surrogates."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last_id = 0
        self._responses: dict[int, tuple[int, _Reader]] = {}
        self._extensions: set[bytes] = set()
        try:
            self._write(Packet.INIT, struct.pack(">I", 3))
            kind, body = self._read()
            if kind != Packet.VERSION:
                raise self._ended("The server speaks no SFTP.")
            body.number()
            while body.rest:
                self._extensions.add(body.text())
                body.text()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):  # what could not be sent any more
                    pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def real_path(self, path: str) -> str:
        """Return the absolute path; links are followed where the server does."""
        body = self._answer(self._ask(Packet.REALPATH, _packed(path)), Packet.NAME)
        body.number()
        return os.fsdecode(body.text())

    def status(self, path: str) -> SftpStatus | None:
        """Return what is at a path; None for nothing."""
        try:
            return self._answer(self._ask(Packet.LSTAT, _packed(path)), Packet.ATTRS).status()
        except SftpError as error:
            if error.code == NO_SUCH_FILE:
                return None
            raise

    def entries(self, path: str) -> Iterator[tuple[str, SftpStatus]]:
        """Yield name and status of what is in a directory. Names that are none are the server's fault, and refused."""
        handle = self._open(Packet.OPENDIR, _packed(path))
        try:
            while True:
                try:
                    body = self._answer(self._ask(Packet.READDIR, _packed(handle)), Packet.NAME)
                except SftpError as error:
                    if error.code == END_OF_FILE:
                        return
                    raise
                for _ in range(body.number()):
                    name, _line, status = body.text(), body.text(), body.status()
                    if name in (b".", b".."):
                        continue
                    if not name or b"/" in name or b"\0" in name:
                        raise self._ended(f"The server names a file {name!r}.")
                    yield os.fsdecode(name), status
        finally:
            self._done(Packet.CLOSE, _packed(handle))

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a file in pieces."""
        handle = self._open(Packet.OPEN, _packed(path) + struct.pack(">II", OpenFor.READ, 0))
        asked: deque[int] = deque()
        try:
            next_offset, is_whole = offset, False
            while not is_whole or asked:
                while not is_whole and len(asked) < IN_FLIGHT:
                    asked.append(self._ask(Packet.READ, _packed(handle) + struct.pack(">QI", next_offset, PIECE_BYTES)))
                    next_offset += PIECE_BYTES
                try:
                    piece = self._answer(asked.popleft(), Packet.DATA).text()
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
                        self._response(request)
                    asked.clear()
                    next_offset = offset
        finally:
            for request in asked:
                self._response(request)
            self._done(Packet.CLOSE, _packed(handle))

    def write(self, path: str, pieces: Iterable[bytes], offset: int, mode: int, mtime: int) -> None:
        """Write pieces of at most PIECE_BYTES from an offset on, and set permissions and time of the file."""
        flags = OpenFor.WRITE | OpenFor.CREATE | (OpenFor(0) if offset else OpenFor.TRUNCATE)
        handle = self._open(Packet.OPEN, _packed(path) + struct.pack(">III", flags, MODE, 0o600))
        asked: deque[int] = deque()
        try:
            for piece in pieces:
                asked.append(self._ask(Packet.WRITE, _packed(handle) + struct.pack(">Q", offset) + _packed(piece)))
                offset += len(piece)
                if len(asked) >= IN_FLIGHT:
                    self._check(asked.popleft())
            while asked:
                self._check(asked.popleft())
            self._done(Packet.FSETSTAT, _packed(handle) + struct.pack(">IIII", MODE | TIMES, mode, mtime, mtime))
        finally:
            for request in asked:
                self._response(request)
            self._done(Packet.CLOSE, _packed(handle))

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        self._done(Packet.MKDIR, _packed(path) + struct.pack(">I", 0))

    def remove(self, path: str) -> None:
        """Remove what is no directory; of a link, the link."""
        self._done(Packet.REMOVE, _packed(path))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._done(Packet.RMDIR, _packed(path))

    def replace(self, source: str, target: str) -> None:
        """Move a file to where another may be, at once if the server can."""
        if POSIX_RENAME in self._extensions:
            self._done(Packet.EXTENDED, _packed(POSIX_RENAME) + _packed(source) + _packed(target))
            return
        if self.status(target):
            self.remove(target)
        self._done(Packet.RENAME, _packed(source) + _packed(target))

    def _open(self, kind: Packet, body: bytes) -> bytes:
        return self._answer(self._ask(kind, body), Packet.HANDLE).text()

    def _done(self, kind: Packet, body: bytes) -> None:
        self._check(self._ask(kind, body))

    def _check(self, request: int) -> None:
        """Raise SftpError unless a request has succeeded."""
        self._answer(request, Packet.STATUS)

    def _answer(self, request: int, expected: Packet) -> "_Reader":
        """Return the response of the expected kind. Raises SftpError for what the server refused."""
        kind, body = self._response(request)
        if kind == Packet.STATUS:
            code = body.number()
            if code != OK or expected != Packet.STATUS:
                message = body.text().decode(errors="replace") if body.rest else ""
                raise SftpError(code, message or f"The server refused it with code {code}.")
        elif kind != expected:
            raise self._ended(f"The server sent a packet of kind {kind}.")
        return body

    def _response(self, request: int) -> tuple[int, "_Reader"]:
        while request not in self._responses:
            kind, body = self._read()
            self._responses[body.number()] = kind, body
        return self._responses.pop(request)

    def _ask(self, kind: Packet, body: bytes) -> int:
        self._last_id = (self._last_id + 1) % 2**32
        self._write(kind, struct.pack(">I", self._last_id) + body)
        return self._last_id

    def _ended(self, problem: str) -> SftpBrokenError:
        """Return the error after which nothing more is said to the server, nor waited for."""
        self._process.kill()
        return SftpBrokenError(problem)

    def _write(self, kind: Packet, body: bytes) -> None:
        assert self._process.stdin  # for the types
        try:
            self._process.stdin.write(struct.pack(">IB", len(body) + 1, kind) + body)
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended("The connection to the session or data folder has ended.") from error

    def _read(self) -> tuple[int, "_Reader"]:
        length = struct.unpack(">I", self._bytes(4))[0]
        if not 0 < length <= MAX_PACKET_BYTES:
            raise self._ended("The server speaks no SFTP.")
        data = self._bytes(length)
        return data[0], _Reader(data[1:], self._ended)

    def _bytes(self, count: int) -> bytes:
        assert self._process.stdout  # for the types
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise self._ended("The connection to the session or data folder has ended.")
        return data


class _Reader:
    """The fields of a packet. Of one that is too short, `broken` makes the error."""

    def __init__(self, data: bytes, broken: Callable[[str], SftpBrokenError]) -> None:
        self._data = data
        self._broken = broken
        self._at = 0

    @property
    def rest(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def number(self, form: str = ">I") -> int:
        """Return the next number."""
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def text(self) -> bytes:
        """Return the next string."""
        return self._take(self.number())

    def status(self) -> SftpStatus:
        """Return the next attributes."""
        flags = self.number()
        size = self.number(">Q") if flags & SIZE else 0
        if flags & OWNER:
            self._take(8)
        mode = self.number() if flags & MODE else 0
        mtime = (self.number(), self.number())[1] if flags & TIMES else 0
        if flags & EXTENSIONS:
            for _ in range(2 * self.number()):
                self.text()
        return SftpStatus(size, mode, mtime)

    def _take(self, count: int) -> bytes:
        if count > self.rest:
            raise self._broken("The server sent a packet that is too short.")
        self._at += count
        return self._data[self._at - count : self._at]


def _packed(text: str | bytes) -> bytes:
    data = os.fsencode(text) if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data
