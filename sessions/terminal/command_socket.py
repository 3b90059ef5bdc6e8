"""The websocket of a command in a session: its input, output, errors and exit code, for programs with a token."""

import asyncio
import json
import logging
import re
from typing import Final

from channels.db import database_sync_to_async

from engine.command import Command
from engine.engine import ExecError
from engine.shell import PLAIN_START
from sessions.access.engine_address import HostUnreachableError, find_engine
from sessions.access.entries import record_entry
from sessions.models import Session
from sessions.revocation.login_watch import LoginWatch
from sessions.terminal.consumer import TerminalConsumer
from sessions.terminal.messages import CloseCode

logger = logging.getLogger(__name__)

UNFIT: Final = re.compile("[\0\ud800-\udfff]")  # what no argument of a program has
MAX_COMMAND_BYTES: Final = 100_000  # the kernel takes 128 KiB for one argument
OUTPUT: Final = b"\x01"  # first byte of a binary frame of output
ERRORS: Final = b"\x02"  # likewise of errors


class CommandConsumer(TerminalConsumer):
    """One command for one websocket, which ends with it.

    The client first sends `{"command": text}`, which the session's shell runs. Its binary frames are input, which
    `{"eof": true}` ends; `{"ack": bytes}` confirms output. At the end comes `{"exit": code}`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None
        self._process: Command | None = None
        self._is_input_ended = False

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Queue input for the command, or carry out a control message."""
        if self._is_closed:
            return
        if bytes_data is not None:
            return await self._take_input(bytes_data)
        try:
            message = json.loads(text_data or "")
        except (ValueError, RecursionError):
            message = None
        match message:
            case {"command": str(command)} if self._is_runnable(command):
                session, self._session = self._session, None
                if session:
                    await self._run(session, command)
            case {"eof": True} if not self._is_input_ended:
                self._is_input_ended = True
                self._input.put(b"")
            case {"ack": int(count)} if count > 0:
                self._credit.give_back(count)
            case _:
                await self._finish(CloseCode.PROTOCOL_BROKEN, "A control message was not understood.")

    def _is_runnable(self, command: str) -> bool:
        """Return whether it is the first command, and one that a kernel takes: JSON can carry halves of surrogates."""
        is_first = self._session is not None
        is_text = bool(command) and not UNFIT.search(command)
        return is_first and is_text and len(command.encode()) <= MAX_COMMAND_BYTES

    async def _start(self, session: Session, login: LoginWatch) -> None:
        """Wait for the command."""
        self._session = session
        self._pumps.append(asyncio.create_task(self._guarded(self._watch_login(login))))

    async def _run(self, session: Session, command: str) -> None:
        arguments = ["/bin/sh", "-c", PLAIN_START, "sh", command]
        try:
            engine = await find_engine(session.host)
            process = await Command.start(engine, session.container_id, arguments, {})
        except (HostUnreachableError, ExecError) as error:
            logger.warning("session %s: no command: %s", session.pk, error)
            return await self._finish(CloseCode.ENGINE_TROUBLE, str(error))
        if self._is_closed:  # signed out meanwhile
            return await process.hang_up()
        self._process = process
        await database_sync_to_async(record_entry)(session, self.scope["user"], "the terminal")
        for pump in (self._copy_output(process), self._copy_input(process)):
            self._pumps.append(asyncio.create_task(self._guarded(pump)))

    async def _copy_output(self, process: Command) -> None:
        """Send output and errors until both end, then the exit code."""
        while True:
            data, is_error = await process.read()
            if not data:
                break
            await process.pause(self._send_output((ERRORS if is_error else OUTPUT) + data))
        try:
            if await self._find_running() is None:
                return await self._finish_ended()
            code = await process.ended()
        except ExecError as error:
            return await self._finish(CloseCode.ENGINE_TROUBLE, str(error))
        await self.send(text_data=json.dumps({"exit": code}))
        await self._finish(CloseCode.SHELL_EXITED, "The command has ended.")

    async def _send_output(self, frame: bytes) -> None:
        """Send a frame of output, and wait until there is credit for another."""
        self._credit.spend(len(frame) - 1)
        await self.send(bytes_data=frame)
        await self._credit.wait()

    async def _copy_input(self, process: Command) -> None:
        """Write input until its end."""
        await self._input.copy_to(process.write)
        await process.end_input()

    async def _clean_up(self) -> None:
        """Stop the pumps and the command; does nothing a second time."""
        process, self._process = self._process, None
        await super()._clean_up()
        if process is not None:
            await process.hang_up()
