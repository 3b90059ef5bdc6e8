"""What a browser sends to a program: input, bounded and confirmed as the program takes it, and the terminal's size."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from engine.engine import ExecError
from engine.shell import Shell

logger = logging.getLogger(__name__)

WINDOW: Final = 512 * 1024  # bytes received and not yet taken by the program; the browser keeps to an eighth of it
CONFIRMED_AT: Final = 16 * 1024  # bytes taken between two confirmations
RESIZE_SECONDS: Final = 3.0  # then it is tried again
RESIZE_PAUSE_SECONDS: Final = 1.0


class InputQueue:
    """Bytes in the order in which they came; `confirm` is called with how many more the program has taken."""

    def __init__(self, confirm: Callable[[int], Awaitable[None]]) -> None:
        self._confirm = confirm
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0

    def put(self, data: bytes) -> bool:
        """Queue bytes; return False where they exceed the window. None of them are the end of the input."""
        self._size += len(data)
        if self._size > WINDOW:
            return False
        self._queue.put_nowait(data)
        return True

    async def copy_to(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write what comes, until the end of the input."""
        unconfirmed = 0
        while data := await self._queue.get():
            await write(data)
            self._size -= len(data)
            unconfirmed += len(data)
            if unconfirmed >= CONFIRMED_AT:
                await self._confirm(unconfirmed)
                unconfirmed = 0


class TerminalSize:
    """The newest size; older ones that no shell has got yet are skipped."""

    def __init__(self) -> None:
        self._size = (80, 24)  # columns, rows
        self._changed = asyncio.Event()

    def change(self, columns: int, rows: int) -> None:
        """Take the size that the browser shows now."""
        self._size = columns, rows
        self._changed.set()

    async def apply_to(self, shell: Shell, session_id: str) -> None:
        """Apply each new size to the shell, and retry on failure; never returns."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                async with asyncio.timeout(RESIZE_SECONDS):
                    await shell.resize(*self._size)
            except (ExecError, TimeoutError) as error:
                logger.warning("session %s: its terminal kept its size: %s", session_id, error)
                await asyncio.sleep(RESIZE_PAUSE_SECONDS)
                self._changed.set()
