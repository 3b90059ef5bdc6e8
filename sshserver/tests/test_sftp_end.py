"""Files of SFTP clients that disconnect are closed, whatever was under way."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import asyncssh
import pytest

from sshserver.open_files import OpenFile, OpenFiles
from sshserver.sftp_server import DataSftpServer
from tests.wait import eventually

READ = asyncssh.FXF_READ


class SlowFolders:
    """Folders with one file, which is opened when `is_open` is set, as on a slow disk."""

    def __init__(self) -> None:
        self.files = OpenFiles(cast(Any, None))
        self.is_asked, self.is_open = threading.Event(), threading.Event()
        self.opened: list[OpenFile] = []

    def open(self, path: str, flags: int, permissions: int | None) -> OpenFile:
        self.is_asked.set()
        self.is_open.wait()
        file = self.files.add(cast(Any, None), os.open(os.devnull, os.O_RDONLY), None, is_changed=False)
        self.opened.append(file)
        return file


async def disconnect_while_opening(folders: SlowFolders, between: Callable[[DataSftpServer], Any]) -> None:
    with ThreadPoolExecutor(2) as threads:
        server = DataSftpServer(cast(Any, None), cast(Any, folders), threads, cast(Any, None), cast(Any, None))
        opening = asyncio.create_task(server.open(b"/x", READ, asyncssh.SFTPAttrs()))
        await asyncio.to_thread(folders.is_asked.wait)
        opening.cancel()
        await asyncio.wait([opening])
        await between(server)
        await eventually(lambda: bool(folders.opened) and folders.opened[0].is_closed)


async def test_a_file_that_opens_after_the_end_is_closed() -> None:
    folders = SlowFolders()

    async def end_first(server: DataSftpServer) -> None:
        await server.end()
        folders.is_open.set()

    await disconnect_while_opening(folders, end_first)


async def test_a_file_that_opens_before_the_end_is_closed() -> None:
    folders = SlowFolders()

    async def open_first(server: DataSftpServer) -> None:
        folders.is_open.set()
        await eventually(lambda: bool(server._opened))
        await server.end()

    await disconnect_while_opening(folders, open_first)


async def test_a_file_whose_close_was_cancelled_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = SlowFolders()
    folders.is_open.set()
    with ThreadPoolExecutor(1) as threads:
        server = DataSftpServer(cast(Any, None), cast(Any, folders), threads, cast(Any, None), cast(Any, None))
        file = await server.open(b"/x", READ, asyncssh.SFTPAttrs())
        is_free = threading.Event()
        threads.submit(is_free.wait)
        closing = asyncio.create_task(server.close(file))
        await asyncio.sleep(0)  # it waits for the only thread
        closing.cancel()
        await asyncio.wait([closing])
        is_free.set()
        await server.end()
    assert folders.opened[0].is_closed
