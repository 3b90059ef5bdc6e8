"""Follows the output of several sessions as one, each line with the name of the session that wrote it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from restapi.streams import ServerSentEvent
from sessions.following.stream import LogFollower, ResumedPosition
from sessions.models import Session

QUEUED: Final = 32  # events that wait to be sent
MAX_LINE: Final = 16 * 1024  # characters; of a longer line its parts are sent

Places = Mapping[str, str]  # by a key of each session, the ids of events of its output


def places_of(text: str, is_key: Callable[[str], bool], most: int) -> Places:
    """Return the places that the id of an event tells, of so many sessions at most. Raises ValueError."""
    parts = [part.partition("=") for part in text.split(",")]
    places = {key: place for key, _, place in parts if ResumedPosition.parsed(place)}
    if len(parts) > most or not all(map(is_key, places)):
        raise ValueError("no places")
    return places


class MergedLog:
    """The output of sessions, from a place on in that of each, until the last has ended.

    Whole lines are sent. The id of an event tells the places behind which every session's output was sent: rather
    repeated than lost.
    """

    def __init__(self, name_of: Callable[[Session], str], resumed: Places, tail: int) -> None:
        self.ends: dict[str, Any] = {}  # data of the last event of each that has ended, by key
        self._name_of = name_of
        self._tail = tail
        self._queue: asyncio.Queue[tuple[str, ServerSentEvent | Exception | None]] = asyncio.Queue(QUEUED)
        self._places = dict(resumed)
        self._sessions: dict[str, Session] = {}
        self._begun: dict[str, str] = {}  # lines without their ends yet
        self._tasks: list[asyncio.Task[None]] = []
        self._left = 0

    def add(self, key: str, session: Session) -> None:
        """Follow this session as well, unless it is or was."""
        if key not in self._sessions:
            self._sessions[key], self._begun[key] = session, ""
            self.run(key, self._follow(key, session))

    def forget(self, keys: Sequence[str]) -> None:
        """Leave all but these out of what an event's id tells."""
        self._places = {key: place for key, place in self._places.items() if key in keys}

    def run(self, key: str, work: Coroutine[None, None, None]) -> None:
        """Run what the log goes on for; queue None or what went wrong once it is over."""
        self._left += 1
        self._tasks.append(asyncio.create_task(self._until_end(key, work)))

    async def outputs(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield `output` with lines."""
        try:
            while self._left:
                key, event = await self._queue.get()
                if isinstance(event, Exception):
                    raise event
                self._left -= event is None
                if shown := self._shown(key, event):
                    yield shown
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until_end(self, key: str, work: Coroutine[None, None, None]) -> None:
        failure: Exception | None = None
        try:
            await work
        except Exception as error:  # raised again where the events are taken
            failure = error
        await self._queue.put((key, failure))

    async def _follow(self, key: str, session: Session) -> None:
        place = self._places.get(key)
        follower = LogFollower(session, ResumedPosition.parsed(place) if place else None, self._tail)
        async with aclosing(follower.events()) as events:
            async for event in events:
                await self._queue.put((key, event))

    def _shown(self, key: str, event: ServerSentEvent | None) -> ServerSentEvent | None:
        """Return what is sent for an event of one session, None being its end."""
        if event is None:
            rest = self._begun.get(key)
            return self._output(key, [rest]) if rest else None
        if event.name == "output":
            return self._lines(key, event)
        if event.name == "end":
            self.ends[key] = event.data
            return None
        return event  # a comment, by which the connection is kept

    def _lines(self, key: str, event: ServerSentEvent) -> ServerSentEvent | None:
        """Return an event of the lines that are whole by now; None without any."""
        *whole, begun = (self._begun[key] + str(event.data)).split("\n")
        if len(begun) > MAX_LINE:
            whole, begun = [*whole, begun], ""
        self._begun[key] = begun
        if not begun:
            self._places[key] = event.id
        return self._output(key, whole)

    def _output(self, key: str, lines: Sequence[str]) -> ServerSentEvent | None:
        if not lines:
            return None
        name = self._name_of(self._sessions[key])
        places = ",".join(f"{each}={place}" for each, place in sorted(self._places.items()))
        return ServerSentEvent(name="output", id=places, data="".join(f"{name} | {line}\n" for line in lines))
