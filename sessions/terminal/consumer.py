"""The websocket of a session's terminal: authorize, start a shell, copy bytes both ways, hang up."""

import asyncio
import logging
import re
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error
from django.utils.translation import override
from redis.exceptions import RedisError

from accounts.models import User
from accounts.signing_in.language import language_of
from engine.credit import Credit
from engine.engine import ExecError
from engine.shell import Shell
from sessions import notify
from sessions.access import activity
from sessions.access.engine_address import HostUnreachableError, find_engine, gateway_of
from sessions.access.entries import record_entry
from sessions.idle import enforcement as idle
from sessions.lifecycle import Status
from sessions.models import SESSION_ID, Session
from sessions.revocation.login_watch import LoginWatch
from sessions.terminal.freshness import Freshness
from sessions.terminal.input import InputQueue, TerminalSize
from sessions.terminal.messages import (
    Ack,
    CloseCode,
    Ping,
    Resize,
    Seen,
    close_reason,
    message_from_text,
    text_from_ack,
    text_from_end,
    text_from_pong,
    text_from_state,
)
from sessions.words import reason_text
from translation.english import from_english
from translation.languages import language_of_scope

logger = logging.getLogger(__name__)

OUTPUT_WINDOW: Final = 512 * 1024  # bytes sent and not yet drawn by the browser
BURST: Final = 1024  # bytes; after a larger read, more output is gathered before the next frame
GATHER_SECONDS: Final = 0.002
REASON_CHECKS: Final = 12
REASON_PAUSE_SECONDS: Final = 0.25


class TerminalConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One shell for one websocket. Accepts first: a browser sees the close code only of an accepted websocket."""

    def __init__(self) -> None:
        super().__init__()
        self._shell: Shell | None = None
        self._is_closed = False
        self._group = ""
        self._login: LoginWatch | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._credit = Credit(OUTPUT_WINDOW)
        self._input = InputQueue(lambda count: self.send(text_data=text_from_ack(count)))
        self._size = TerminalSize()
        self._freshness = Freshness()
        self._ends_at: datetime | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve the websocket; release everything however it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._clean_up()

    async def connect(self) -> None:
        """Start the shell, or close with the reason why there is none."""
        await self.accept()
        if not self.scope["user"].is_authenticated:
            return await self._finish(CloseCode.SIGNED_OUT, "Sign in first.")
        session = await self._find_running()
        if session is None:
            await self._tell_state()
            return await self._finish(CloseCode.NOT_FOUND, "There is no such running session.")
        self._login = login = LoginWatch(self)
        await login.join()
        await self._listen(session)
        await self._start(session, login)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Queue input for the shell, or carry out a control message."""
        if self._shell is None or self._is_closed:
            return
        if bytes_data is not None:
            return await self._take_input(bytes_data)
        try:
            message = message_from_text(text_data or "")
        except ValueError:
            return await self._finish(CloseCode.PROTOCOL_BROKEN, "A control message was not understood.")
        match message:
            case Ack(count):
                self._credit.give_back(count)
            case Resize(columns, rows):
                self._size.change(columns, rows)
            case Ping(number):
                self._freshness.answer(number)
                await self.send(text_data=text_from_pong(number))
            case Seen(number):
                self._freshness.seen(number)

    async def _take_input(self, data: bytes) -> None:
        if not data:
            return None
        if self._freshness.is_stale:
            return await self._finish(CloseCode.STALE, "What was typed while the network was away was not sent.")
        activity.used(self._session_id)
        if not self._input.put(data):
            await self._finish(CloseCode.PROTOCOL_BROKEN, "Input came faster than it was confirmed.")

    async def login_changed(self, message: dict[str, Any]) -> None:
        """Check the login; called by a message of the channel layer (sessions.notify)."""
        if self._login:
            self._login.check()

    async def session_changed(self, message: dict[str, Any]) -> None:
        """Close if this session no longer runs, or its host may not be reached; called by the channel layer."""
        if self._is_closed or message["session"] not in (notify.ALL, self._session_id):
            return
        try:
            session = await self._find_running()
            if session is None:
                return await self._finish_ended()
            gateway_of(session.host)
        except HostUnreachableError as problem:  # its credentials were revoked
            return await self._finish(CloseCode.ENGINE_TROUBLE, str(problem))
        except Error as error:  # checked again with the login
            logger.warning("session %s: its terminal could not check whether it runs: %s", self._session_id, error)
            return
        await self._tell_end(session)

    @property
    def _session_id(self) -> str:
        return str(self.scope["url_route"]["kwargs"]["session_id"])

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def _find_running(self) -> Session | None:
        if not re.fullmatch(SESSION_ID, self._session_id):
            return None
        user: User = self.scope["user"]
        sessions = Session.objects.operable_by(user)
        visible = sessions.select_related("host", "owner__policy", "project__policy", "resource_group", "idle_notice")
        return visible.filter(pk=self._session_id, status=Status.RUNNING.value).first()

    async def _tell_state(self) -> bool:
        """Say why the session does not run; return whether that is known."""
        text = await _state_text(self.scope["user"], self._session_id)
        if text and not self._is_closed:
            await self.send(text_data=text)
        return bool(text)

    async def _tell_end(self, session: Session) -> None:
        """Tell the browser when the session ends by its limits or as idle, if that has changed."""
        notice, ends_at = idle.notice_of(session), session.ends_at
        is_idle = notice is not None and (ends_at is None or notice.ends_at < ends_at)
        if notice and is_idle:
            ends_at = notice.ends_at
        if ends_at != self._ends_at:
            self._ends_at = ends_at
            await self.send(text_data=text_from_end(ends_at, is_idle=is_idle))

    async def _finish_ended(self) -> None:
        """Close and say why. A container's end is known here before its host has noted the reason."""
        for _ in range(REASON_CHECKS):
            if await self._tell_state():
                break
            await asyncio.sleep(REASON_PAUSE_SECONDS)
        await self._finish(CloseCode.SESSION_ENDED, "The session has ended.")

    async def _listen(self, session: Session) -> None:
        """Subscribe to changes of the session, which are sent to its owner's group; this user may be a superadmin."""
        try:
            await self.channel_layer.group_add(notify.user_group(session.owner_id), self.channel_name)
            self._group = notify.user_group(session.owner_id)
        except (RedisError, OSError) as error:  # the end of the shell ends the terminal too
            logger.warning("session %s: its terminal gets no changes: %s", session.pk, error)

    async def _start(self, session: Session, login: LoginWatch) -> None:
        try:
            self._shell = await Shell.start(await find_engine(session.host), session.container_id)
        except (HostUnreachableError, ExecError) as error:
            logger.warning("session %s: no terminal: %s", session.pk, error)
            return await self._finish(CloseCode.ENGINE_TROUBLE, str(error))
        await database_sync_to_async(record_entry)(session, self.scope["user"], "the terminal")
        await self._tell_end(session)
        logger.info("session %s: terminal opened by user %s", session.pk, self.scope["user"].pk)
        for pump in (
            self._pump_output(self._shell),
            self._input.copy_to(self._shell.write),
            self._size.apply_to(self._shell, self._session_id),
            self._watch_login(login),
        ):
            self._pumps.append(asyncio.create_task(self._guarded(pump)))

    async def _pump_output(self, shell: Shell) -> None:
        while data := await shell.read():
            self._credit.spend(len(data))
            await self.send(bytes_data=data)
            if len(data) >= BURST:
                await asyncio.sleep(GATHER_SECONDS)
            await self._credit.wait()
        await self._finish_after_shell(shell)

    async def _guarded(self, pump: Coroutine[Any, Any, None]) -> None:
        """Run a pump, which nobody awaits; log its exception and close."""
        try:
            await pump
        except OSError:
            logger.info("session %s: the browser left its terminal", self._session_id)
        except Exception:
            logger.exception("session %s: the terminal failed", self._session_id)
            await self._finish(CloseCode.ENGINE_TROUBLE, "The terminal failed; the platform's log has the cause.")

    async def _watch_login(self, login: LoginWatch) -> None:
        """Close once the login that opened the terminal has ended, or its user may no longer see the session."""
        async for user in login.users():
            self.scope["user"] = user
            if not user.is_authenticated:
                return await self._finish(CloseCode.SIGNED_OUT, "You were signed out.")
            await self.session_changed({"session": self._session_id})

    async def _finish_after_shell(self, shell: Shell) -> None:
        """Close after the last output: the shell exited, the container stopped, or the connection broke."""
        try:
            has_session_ended = await self._find_running() is None or not await shell.is_container_running()
            is_shell_alive = not has_session_ended and await shell.exit_code() is None
        except ExecError as error:
            return await self._finish(CloseCode.ENGINE_TROUBLE, str(error))
        if has_session_ended:
            await self._finish_ended()
        elif is_shell_alive:
            await self._finish(CloseCode.ENGINE_TROUBLE, "The connection to the shell broke.")
        else:
            await self._finish(CloseCode.SHELL_EXITED, "The shell has ended.")

    async def _finish(self, code: CloseCode, words: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            with override(language_of_scope(self.scope)):
                await self.close(code=code.value, reason=close_reason(from_english(words)))
            await self._clean_up()

    async def _clean_up(self) -> None:
        """Stop the pumps, the subscriptions and the shell; does nothing a second time."""
        self._is_closed = True
        shell, self._shell = self._shell, None
        pumps, self._pumps = self._pumps, []
        group, self._group = self._group, ""
        login, self._login = self._login, None
        for pump in pumps:
            if pump is not asyncio.current_task():
                pump.cancel()
        if shell is not None:
            await shell.hang_up()
            logger.info("session %s: terminal closed", self._session_id)
        if login:
            await login.leave()
        if group:
            try:
                await self.channel_layer.group_discard(group, self.channel_name)
            except (RedisError, OSError) as error:
                logger.info("session %s: could not leave %s: %s", self._session_id, group, error)


def _state_of(session: Session) -> str:
    """Return whether a session that does not run is put aside, will run by itself, or has ended."""
    if session.status == Status.PARKED:
        return "parked"
    if session.status == Status.TERMINATING:
        return "parking" if session.is_parking else "ended"
    return "ended" if session.is_final else "waiting"


@database_sync_to_async  # type: ignore[untyped-decorator]
def _state_text(user: User, session_id: str) -> str:
    """Return the frame that says why a session does not run, in the user's language; "" while it is not known."""
    if not re.fullmatch(SESSION_ID, session_id):
        return ""
    session = Session.objects.operable_by(user).filter(pk=session_id).exclude(status=Status.RUNNING).first()
    if session is None:
        return ""
    with language_of(user):
        return text_from_state(_state_of(session), from_english(reason_text(session.reason, session.detail)))
