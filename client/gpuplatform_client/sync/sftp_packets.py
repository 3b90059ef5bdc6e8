"""Packets of SFTP version 3 (draft-ietf-secsh-filexfer-02) over the pipes of a program."""

import os
import stat
import struct
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gpuplatform_client.errors import ClientError

MAX_PACKET_BYTES: Final = 2**20
END_SECONDS: Final = 5.0
OK: Final = 0
END_OF_FILE: Final = 1
NO_SUCH_FILE: Final = 2
SIZE, OWNER, MODE, TIMES, EXTENSIONS = 1, 2, 4, 8, 0x80000000  # which attributes there are


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


class Reader:
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


class SftpConnection:
    """Requests and responses over the pipes of a program, for one thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last_id = 0
        self._responses: dict[int, tuple[int, Reader]] = {}
        self.extensions: set[bytes] = set()
        try:
            self._write(Packet.INIT, struct.pack(">I", 3))
            kind, body = self._read()
            if kind != Packet.VERSION:
                raise self.ended("The server speaks no SFTP.")
            body.number()
            while body.rest:
                self.extensions.add(body.text())
                body.text()
        except BaseException:
            self.close()
            raise

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

    def done(self, kind: Packet, body: bytes) -> None:
        """Send a request and raise SftpError unless it succeeds."""
        self.check(self.ask(kind, body))

    def check(self, request: int) -> None:
        """Raise SftpError unless a request has succeeded."""
        self.answer(request, Packet.STATUS)

    def request(self, kind: Packet, body: bytes, expected: Packet) -> Reader:
        """Send a request and return its response. Raises SftpError for what the server refused."""
        return self.answer(self.ask(kind, body), expected)

    def answer(self, request: int, expected: Packet) -> Reader:
        """Return the response of the expected kind. Raises SftpError for what the server refused."""
        kind, body = self.response(request)
        if kind == Packet.STATUS:
            code = body.number()
            if code != OK or expected != Packet.STATUS:
                message = body.text().decode(errors="replace") if body.rest else ""
                raise SftpError(code, message or f"The server refused it with code {code}.")
        elif kind != expected:
            raise self.ended(f"The server sent a packet of kind {kind}.")
        return body

    def response(self, request: int) -> tuple[int, Reader]:
        """Return kind and body of the response to a request."""
        while request not in self._responses:
            kind, body = self._read()
            self._responses[body.number()] = kind, body
        return self._responses.pop(request)

    def ask(self, kind: Packet, body: bytes) -> int:
        """Send a request; return its number."""
        self._last_id = (self._last_id + 1) % 2**32
        self._write(kind, struct.pack(">I", self._last_id) + body)
        return self._last_id

    def ended(self, problem: str) -> SftpBrokenError:
        """Return the error after which nothing more is said to the server, nor waited for."""
        self._process.kill()
        return SftpBrokenError(problem)

    def _write(self, kind: Packet, body: bytes) -> None:
        assert self._process.stdin  # for the types
        try:
            self._process.stdin.write(struct.pack(">IB", len(body) + 1, kind) + body)
            self._process.stdin.flush()
        except OSError as error:
            raise self.ended("The connection to the session or data folder has ended.") from error

    def _read(self) -> tuple[int, Reader]:
        length = struct.unpack(">I", self._bytes(4))[0]
        if not 0 < length <= MAX_PACKET_BYTES:
            raise self.ended("The server speaks no SFTP.")
        data = self._bytes(length)
        return data[0], Reader(data[1:], self.ended)

    def _bytes(self, count: int) -> bytes:
        assert self._process.stdout  # for the types
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise self.ended("The connection to the session or data folder has ended.")
        return data


def packed(text: str | bytes) -> bytes:
    """Return a string as a packet has it."""
    data = os.fsencode(text) if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data
