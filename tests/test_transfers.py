"""Uploads and downloads of large files: the web process dies in the middle, and its memory stays flat."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import requests

from folders.models import Folder
from folders.tests.transfers import TransferClient, files_dir, folder_on_disk, uploads_dir
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

MIB: Final = 2**20
SMALL, LARGE = 64 * MIB, 2048 * MIB
GROWTH: Final = 32 * MIB  # of the web process, for both sizes


class Content:
    """A file's content from an offset, which requests sends with its length; each mebibyte differs."""

    def __init__(self, size: int, offset: int = 0, half_way: Callable[[], None] | None = None) -> None:
        self._size = size
        self._offset = offset
        self._half_way = half_way

    def __len__(self) -> int:
        return self._size - self._offset

    def __iter__(self) -> Iterator[bytes]:
        for start in range(self._offset - self._offset % MIB, self._size, MIB):
            if start >= self._size // 2 and self._half_way:
                self._half_way()
            block = random.Random(start).randbytes(64) * (MIB // 64)
            yield block[max(0, self._offset - start) :]

    def digest(self) -> str:
        """Return the SHA-256 of all of it."""
        found = hashlib.sha256()
        for block in self:
            found.update(block)
        return found.hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder on this machine."""
    return folder_on_disk(tmp_path)


def crash(server: LiveServer) -> None:
    """Kill the web process with SIGKILL, and start it again."""
    server.end(signal.SIGKILL)
    server.start()


def peak_memory(server: LiveServer) -> int:
    """Return the most memory that the process ever had, in bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def warm_up(client: TransferClient) -> None:
    """Have the process import and allocate what it needs for any transfer."""
    client.begin("warm", 4 * MIB, "replace", data=bytes(4 * MIB))
    client.download("warm")


@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)])
def test_killed_transfers_resume_in_flat_memory(server: LiveServer, folder: Folder, size: int) -> None:
    client = TransferClient(server, folder)
    warm_up(client)
    upload = client.begun("large.bin", size)
    before = peak_memory(server)
    first_growth: list[int] = []

    (partial,) = uploads_dir(folder).iterdir()

    def die() -> None:
        if not first_growth:
            until(lambda: partial.stat().st_size > size // 4)  # half is sent, much of which the kernel may have
            first_growth.append(peak_memory(server) - before)
            crash(server)

    with pytest.raises(requests.ConnectionError):
        client.patch(upload, 0, Content(size, half_way=die))
    offset = client.offset(upload)
    assert size // 4 < offset <= size // 2 + MIB
    assert not (files_dir(folder) / "large.bin").exists()
    warm_up(client)
    before = peak_memory(server)
    assert client.patch(upload, offset, Content(size, offset)).status_code == 204
    assert max(*first_growth, peak_memory(server) - before) < GROWTH
    file = files_dir(folder) / "large.bin"
    with file.open("rb") as opened:
        assert hashlib.file_digest(opened, "sha256").hexdigest() == Content(size).digest()
    assert not list(uploads_dir(folder).iterdir())
    assert downloaded(client, server, size) == Content(size).digest()
    assert peak_memory(server) - before < GROWTH


def downloaded(client: TransferClient, server: LiveServer, size: int) -> str:
    """Return the digest of the large file, downloaded in two parts: the process dies early in the first.

    Tens of mebibytes more may have been sent by then, which the kernel delivers nonetheless.
    """
    found, received = hashlib.sha256(), 0
    answer = client.download("large.bin", stream=True)
    etag = answer.headers["ETag"]
    with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        for chunk in answer.iter_content(MIB):
            found.update(chunk)
            received += len(chunk)
            if received == size // 8:
                crash(server)
                warm_up(client)
    assert size // 8 <= received < size
    rest = client.download("large.bin", stream=True, Range=f"bytes={received}-", If_Range=etag)
    assert rest.status_code == 206
    for chunk in rest.iter_content(MIB):
        found.update(chunk)
    return found.hexdigest()


def test_upload_that_was_whole_when_its_process_died(server: LiveServer, folder: Folder) -> None:
    client = TransferClient(server, folder)
    upload = client.begun("a", 3)
    (partial,) = uploads_dir(folder).iterdir()
    partial.write_bytes(b"abc")  # as if the process had died between the last byte and the rename
    crash(server)
    assert client.offset(upload) == 3
    assert (files_dir(folder) / "a").read_bytes() == b"abc"


def test_large_archive_needs_little_memory(server: LiveServer, folder: Folder) -> None:
    client = TransferClient(server, folder)
    crash(server)  # the peak of the tests before is gone with the process
    warm_up(client)
    for number in range(6):
        with (files_dir(folder) / f"sparse-{number}").open("wb") as file:
            os.truncate(file.fileno(), 16 * MIB)
    before = peak_memory(server)
    answer = client.ask("GET", f"/api/v1/folders/{folder.pk}/zip/", stream=True)
    assert sum(map(len, answer.iter_content(MIB))) > 96 * MIB
    assert peak_memory(server) - before < GROWTH
