"""Follows the output of all members of a cluster as one, each line with the member that wrote it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from restapi.streams import ServerSentEvent
from sessions.following.logs import prefixed
from sessions.following.stream import LogFollower, ResumedPosition
from sessions.lifecycle import Result
from sessions.models import MAX_MEMBERS, Session

QUEUED: Final = 32  # events that wait to be sent
MAX_LINE: Final = 16 * 1024  # characters; of a longer line its parts are sent

Places = Mapping[int, str]  # by rank, the ids of events of one member


def places_of(text: str) -> Places:
    """Return the places that the id of an event tells. Raises ValueError."""
    parts = [part.partition("=") for part in text.split(",")]
    places = {int(rank): place for rank, _, place in parts if ResumedPosition.parsed(place)}
    if len(parts) > MAX_MEMBERS or not places.keys() <= set(range(MAX_MEMBERS)):
        raise ValueError("no places")
    return places


class ClusterLogFollower:
    """The output of all members, from a place on in that of each, until the last has ended.

    Whole lines are sent. The id of an event tells the places behind which every member's output was sent: rather
    repeated than lost.
    """

    def __init__(self, members: Sequence[Session], resumed: Places, tail: int) -> None:
        self._members = members
        self._tail = tail
        self._queue: asyncio.Queue[tuple[Session, ServerSentEvent | Exception | None]] = asyncio.Queue(QUEUED)
        self._places = dict(resumed)
        self._begun = dict.fromkeys((member.rank for member in members), "")  # lines without their ends yet
        self._ends: dict[str, Any] = {}

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield `output` with lines, and `end` with the status of the whole and of each member."""
        followers = [asyncio.create_task(self._follow(member)) for member in self._members]
        try:
            left = len(followers)
            while left:
                member, event = await self._queue.get()
                if isinstance(event, Exception):
                    raise event
                left -= event is None
                if shown := self._shown(member, event):
                    yield shown
        finally:
            for task in followers:
                task.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
        if self._ends:
            yield ServerSentEvent(name="end", data=_end_of_all(self._ends))

    async def _follow(self, member: Session) -> None:
        """Queue the events of one member, and at last None or what went wrong."""
        place = self._places.get(member.rank)
        follower = LogFollower(member, ResumedPosition.parsed(place) if place else None, self._tail)
        failure: Exception | None = None
        try:
            async with aclosing(follower.events()) as events:
                async for event in events:
                    await self._queue.put((member, event))
        except Exception as error:  # raised again where the events are taken
            failure = error
        await self._queue.put((member, failure))

    def _shown(self, member: Session, event: ServerSentEvent | None) -> ServerSentEvent | None:
        """Return what is sent for an event of one member, None being its end."""
        if event is None:
            rest = self._begun[member.rank]
            return self._output(member, [rest]) if rest else None
        if event.name == "output":
            return self._lines(member, event)
        if event.name == "end":
            self._ends[member.member_name] = event.data
            return None
        return event  # a comment, by which the connection is kept

    def _lines(self, member: Session, event: ServerSentEvent) -> ServerSentEvent | None:
        """Return an event of the lines that are whole by now; None without any."""
        *whole, begun = (self._begun[member.rank] + str(event.data)).split("\n")
        if len(begun) > MAX_LINE:
            whole, begun = [*whole, begun], ""
        self._begun[member.rank] = begun
        if not begun:
            self._places[member.rank] = event.id
        return self._output(member, whole)

    def _output(self, member: Session, lines: Sequence[str]) -> ServerSentEvent | None:
        if not lines:
            return None
        places = ",".join(f"{rank}={place}" for rank, place in sorted(self._places.items()))
        return ServerSentEvent(name="output", id=places, data="".join(f"{prefixed(member, line)}\n" for line in lines))


def _end_of_all(ends: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of the first member, but of the first that failed its result; and that of each by its name."""
    by_rank = [ends[name] for name in sorted(ends, key=lambda name: (not name.startswith("main"), len(name), name))]
    failed = [end for end in by_rank if end["result"] == Result.FAILURE and end["exit_code"]]
    return {**(failed or by_rank)[0], "status": by_rank[0]["status"], "members": dict(ends)}
