"""Follows a session for clients of the API: its changes of status, and its output, as events that can be resumed."""

import asyncio
import codecs
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from engine.containers import container_name
from engine.engine import ExecError
from engine.output import LogEntry, follow
from restapi.streams import COMMENT, ServerSentEvent
from sessions.access.engine_address import HostUnreachableError, find_engine
from sessions.lifecycle import FINAL, IN_CONTAINER, Status
from sessions.models import Session, SessionEvent
from sessions.notify import ALL, user_group

POLL_SECONDS: Final = 10.0  # in which a change is seen whose message was lost
RETRY_SECONDS: Final = 1.0
COALESCE_SECONDS: Final = 0.05
CONTEXT_CHARACTERS: Final = 120  # by which a place in stored output is found again
MAX_TAIL: Final = 100_000  # lines

Show = Callable[[Session], Any]


class Changes:
    """The messages about one session, or all of a user's, in the channel layer; without Redis, a clock."""

    def __init__(self, session_id: str | None, owner_id: int) -> None:
        self._session_id = session_id
        self._group = user_group(owner_id)
        self._layer = get_channel_layer()
        self._channel = ""
        self._next: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> "Changes":
        with suppress(RedisError, OSError):
            self._channel = await self._layer.new_channel()
            await self._layer.group_add(self._group, self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._next:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        with suppress(RedisError, OSError):
            await self._layer.group_discard(self._group, self._channel)

    async def wait(self, seconds: float) -> None:
        """Return once the session may have changed, at the latest after so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            self._next = self._next or asyncio.create_task(self._layer.receive(self._channel))
            await asyncio.wait({self._next}, timeout=left)
            if not self._next.done():
                return
            done, self._next = self._next, None
            if done.exception() is not None:
                await asyncio.sleep(min(left, RETRY_SECONDS))
                return
            changed = done.result().get("session")
            if changed in (self._session_id, ALL) or (self._session_id is None and changed is not None):
                await asyncio.sleep(COALESCE_SECONDS)
                return


async def status_events(
    session: Session, last_id: int, show: Show, show_event: Callable[[SessionEvent], Any]
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the changes of status after `last_id`, with the session as it is now, until it has ended.

    In events without an id: while it waits, its reason and estimate as they change; of a cluster, its status as a
    whole, and that its last member is resized.
    """
    sent: Any = None
    async with Changes(session.pk, session.owner_id) as changes:
        while True:
            found, shown, events = await database_sync_to_async(_read_events)(session.pk, last_id, show, show_event)
            if shown is None:
                return
            for last_id, event in events:
                yield ServerSentEvent(name="status", id=str(last_id), data={"event": event, "session": shown})
            if found is None:
                return
            status = found.whole_status
            waits = (found.reason, found.detail, found.eta, found.eta_reason, status, found.whole_resize)
            if not events and waits != sent and status not in FINAL:
                yield ServerSentEvent(name="wait", data={"event": None, "session": shown})
            sent = waits
            if status in FINAL:
                yield ServerSentEvent(name="end", data=shown)
                return
            await changes.wait(POLL_SECONDS)


def _read_events(
    session_id: str, last_id: int, show: Show, show_event: Callable[[SessionEvent], Any]
) -> tuple[Session | None, Any, list[tuple[int, Any]]]:
    rows = SessionEvent.objects.filter(session=session_id, id__gt=last_id).select_related("actor").order_by("id")
    events = [(row.pk, show_event(row)) for row in rows]
    found = Session.objects.with_members().filter(pk=session_id).first()  # after them: it has what they tell of
    return (found, show(found), events) if found else (None, None, [])


@dataclass(slots=True)
class Position:
    """A place in the output of a session, which an event's id tells."""

    attempt: int = 0
    stamp: str = ""  # of the last entry; "" before the first
    same: int = 0  # entries with this stamp that were sent
    context: str = ""  # the last characters that were sent
    characters: int = 0  # sent in all

    @property
    def text(self) -> str:
        """The id of an event."""
        digest = zlib.crc32(self.context.encode())
        parts = (self.attempt, self.stamp, self.same, self.characters, len(self.context), f"{digest:08x}")
        return ":".join(str(part) for part in parts)

    def begin(self, attempt: int) -> None:
        """Go to the beginning of the output of another attempt."""
        self.attempt, self.stamp, self.same, self.context, self.characters = attempt, "", 0, "", 0

    def advance(self, entry: LogEntry) -> None:
        """Go behind the entry."""
        self.same = self.same + 1 if entry.stamp == self.stamp else 1
        self.stamp = entry.stamp

    def add(self, text: str) -> None:
        """Note what was sent."""
        self.context = (self.context + text)[-CONTEXT_CHARACTERS:]
        self.characters += len(text)


@dataclass(frozen=True, slots=True)
class ResumedPosition:
    """A place as an event's id tells it: of what was sent before, only a checksum is known."""

    attempt: int
    stamp: str
    same: int
    characters: int
    context_length: int
    digest: str

    @classmethod
    def parsed(cls, text: str) -> "ResumedPosition":
        """Return the position of an id. Raises ValueError."""
        attempt, stamp, same, characters, length, digest = text.split(":")
        seconds, _, fraction = stamp.partition(".")
        if stamp and not (seconds.isdecimal() and fraction.isdecimal() and len(fraction) == 9 and len(seconds) < 12):
            raise ValueError("no time")
        if not 0 <= int(length) <= CONTEXT_CHARACTERS:  # `rest` takes time in proportion
            raise ValueError("no context")
        return cls(int(attempt), stamp, int(same), int(characters), int(length), digest)

    def rest(self, stored: str) -> str:
        """Return what of the stored output comes behind this place: all of it, where the place is not found.

        Stored output may lack its beginning. The first place that fits is taken: rather repeated than lost.
        """
        if not self.characters:
            return stored
        for end in (self.characters, *range(self.context_length, len(stored) + 1)):
            context = stored[max(0, end - self.context_length) : end]
            if len(context) == self.context_length and f"{zlib.crc32(context.encode()):08x}" == self.digest:
                return stored[end:]
        return stored


class LogFollower:
    """The output of one session, from a place on, over its attempts and interruptions, until it has ended."""

    def __init__(self, session: Session, resumed: ResumedPosition | None, tail: int) -> None:
        self._session = session
        self._resumed = resumed
        self._tail = tail
        self._is_complete = False  # the container has ended, and all of its output was sent
        self._position = Position()
        if resumed:
            self._position = Position(resumed.attempt, resumed.stamp, resumed.same, "", resumed.characters)

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield `output` with text, and `end` with the session's status."""
        async with Changes(self._session.pk, self._session.owner_id) as changes:
            while True:
                session = await database_sync_to_async(self._read)()
                if session is None:
                    return
                self._session = session
                has_container = session.host is not None and (
                    Status(session.status) in IN_CONTAINER or (session.status in FINAL and not session.log_tail)
                )
                if has_container and (session.status not in FINAL or not self._is_sent()):
                    async with aclosing(self._of_container()) as outputs:
                        async for event in outputs:
                            yield event
                    if session.status in FINAL and not self._is_sent():  # the container is gone, so its log is stored
                        self._session = await database_sync_to_async(self._read)() or session
                if session.status in FINAL:
                    for event in self._ending():
                        yield event
                    return
                await changes.wait(RETRY_SECONDS if has_container else POLL_SECONDS)

    def _is_sent(self) -> bool:
        return self._is_complete and self._position.attempt == self._session.attempt

    def _read(self) -> Session | None:
        return Session.objects.select_related("host").filter(pk=self._session.pk).first()

    async def _of_container(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield the output of the present attempt's container, until it ends or its engine is away."""
        session, position = self._session, self._position
        if position.attempt != session.attempt:
            position.begin(session.attempt)
            self._is_complete = False
        before, same = position.stamp, position.same
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            engine = await find_engine(session.host)
            name = container_name(session.pk, session.attempt)
            has_output = False
            async with aclosing(follow(engine, name, tail=self._tail, since=before)) as entries:
                async for entry in entries:
                    has_output = True
                    if entry.stamp < before or (entry.stamp == before and same > 0):
                        same -= entry.stamp == before
                        continue
                    position.advance(entry)
                    text = decoder.decode(entry.content)
                    position.add(text)
                    yield ServerSentEvent(name="output", id=position.text, data=text)
            self._is_complete = has_output
        except (ExecError, HostUnreachableError):
            yield COMMENT  # it is tried again

    def _ending(self) -> list[ServerSentEvent]:
        """Return what is left of the stored output, and the end."""
        session, stored = self._session, self._session.log_tail
        events = []
        if not self._is_sent() and stored:
            is_resumed = self._resumed and self._resumed.attempt == session.attempt
            if self._position.context and self._position.attempt == session.attempt:
                here = ResumedPosition.parsed(self._position.text)
            else:
                here = self._resumed if is_resumed and self._resumed else ResumedPosition(0, "", 0, 0, 0, "")
            if rest := here.rest(stored):
                position = Position(session.attempt, "", 0)
                position.add(stored)
                events.append(ServerSentEvent(name="output", id=position.text, data=rest))
        end = {"status": session.status, "result": session.result, "exit_code": session.exit_code}
        return [*events, ServerSentEvent(name="end", data=end)]
