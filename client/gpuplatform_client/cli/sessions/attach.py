"""`gpuplatform attach`: this terminal becomes that of a session, without SSH."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from gpuplatform_client import stored_login
from gpuplatform_client.cli.connection import connected, messages, reporting
from gpuplatform_client.cli.exit_codes import FAILED
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.errors import ClientError
from gpuplatform_client.operations.lookups import find_running_session
from gpuplatform_client.terminal import RemoteTerminal, TerminalEnd, WindowSize, copy_input

LEAVE_KEY: Final = b"\x1d"  # Ctrl-], as telnet has it
READ_BYTES: Final = 16 * 1024


@reporting()
def attach(name: SessionName) -> None:
    """Open the terminal of a session over the platform's own address; Ctrl-] leaves it, and what runs in it goes on."""
    if not sys.stdin.isatty():
        raise ClientError("This needs a terminal; `gpuplatform exec NAME -- COMMAND` runs a command without one.")
    with connected() as client:
        session = find_running_session(client, name)
    login = stored_login.load()
    with _raw(sys.stdin.fileno()):
        end = asyncio.run(_attached(login.url, login.token, session.id))
    if not end.is_good:
        messages.print(end.reason or "The terminal has ended.", highlight=False, markup=False)
        raise typer.Exit(FAILED)


async def _attached(url: str, token: str, session_id: str) -> TerminalEnd:
    loop = asyncio.get_running_loop()
    terminal = RemoteTerminal(url, token, session_id, _write, _size())
    typed: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
    resizes: set[asyncio.Task[None]] = set()

    def resize() -> None:
        task = asyncio.ensure_future(terminal.resize(_size()))
        resizes.add(task)
        task.add_done_callback(resizes.discard)

    def read() -> None:
        if typed.full():  # until the platform has taken what was typed, the rest waits in the kernel
            loop.remove_reader(sys.stdin.fileno())
        else:
            typed.put_nowait(os.read(sys.stdin.fileno(), READ_BYTES))

    async def next_input() -> bytes:
        data = await typed.get()
        loop.add_reader(sys.stdin.fileno(), read)
        return data

    loop.add_signal_handler(signal.SIGWINCH, resize)
    loop.add_reader(sys.stdin.fileno(), read)
    copying = asyncio.create_task(copy_input(terminal, next_input, LEAVE_KEY))
    try:
        return await terminal.run()
    finally:
        loop.remove_reader(sys.stdin.fileno())
        copying.cancel()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _size() -> WindowSize:
    columns, rows = shutil.get_terminal_size()
    return columns, rows


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Have every key sent as it is pressed; the terminal is as before at the end."""
    try:
        import termios
        import tty
    except ImportError:
        raise ClientError("This command needs Linux or macOS; elsewhere use `gpuplatform ssh`.") from None
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
