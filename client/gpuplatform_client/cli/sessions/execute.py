"""`gpuplatform exec`: run a command in a session, without SSH."""

import asyncio
import os
import shlex
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Annotated, Final

import typer

from gpuplatform_client import stored_login
from gpuplatform_client.cli.connection import connected, reporting
from gpuplatform_client.cli.exit_codes import NO_MORE_KNOWN
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.commands import RemoteCommand
from gpuplatform_client.operations.lookups import find_running_session

READ_BYTES: Final = 16 * 1024


@reporting(NO_MORE_KNOWN)  # as ssh exits where no command was run
def execute(
    name: SessionName,
    command: Annotated[list[str], typer.Argument(help="What to run, behind -- or not")],
) -> None:
    """Run a command in a session over the platform's own address: its input and output are this one's."""
    with connected() as client:
        session = find_running_session(client, name)
    login = stored_login.load()
    words = command[1:] if command[0] == "--" else command
    code = asyncio.run(_run(login.url, login.token, session.id, shlex.join(words)))
    sys.stdout.flush()
    raise typer.Exit(code)


async def _run(url: str, token: str, session_id: str, command: str) -> int:
    return await RemoteCommand(url, token, session_id, _write).run(command, _input())


async def _input() -> AsyncIterator[bytes]:
    """Yield what comes in, read by a thread, since files and terminals cannot both be read by an event loop."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        data = b"-"
        while data:
            data = _read()
            taken = pieces.put(data)
            try:
                asyncio.run_coroutine_threadsafe(taken, loop).result()
            except (CancelledError, RuntimeError):  # the command has ended, and with it the loop
                taken.close()
                return

    threading.Thread(target=read, daemon=True).start()
    while data := await pieces.get():
        yield data


def _read() -> bytes:
    """Return input, which has ended where there is none to read."""
    try:
        return os.read(sys.stdin.fileno(), READ_BYTES) if sys.stdin else b""
    except OSError:
        return b""


def _write(data: bytes, is_error: bool) -> None:
    stream = sys.stderr if is_error else sys.stdout
    stream.buffer.write(data)
    stream.buffer.flush()
