"""Follows all sessions of a user for clients of the API: one stream of changes of status, which can be resumed.

Ids of events are given out before their transactions commit, so that one may appear behind a later one. A position in
the stream is therefore an id up to which everything has appeared, and the ids beyond it that were sent.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from channels.db import database_sync_to_async
from django.db.models.functions import Coalesce, Now

from accounts.models import User
from restapi.streams import ServerSentEvent
from sessions.following.stream import POLL_SECONDS, Changes
from sessions.lifecycle import Status
from sessions.models import Session, SessionEvent

SETTLED: Final = timedelta(seconds=30)  # no transaction that writes an event takes as long
MAX_EVENTS: Final = 200  # that are read at once
MAX_POSITION_LENGTH: Final = 4000

_POSITION: Final = re.compile(r"\d{1,18}(:\d{1,18}(\.\d{1,18})*)?", re.ASCII)

Waits = Mapping[str, tuple[Any, ...]]  # {session id: what is said of its waiting}
Show = Callable[[Collection[str]], Mapping[str, Any]]  # {session id: session as the API shows it}


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A place in the stream: all events up to the id `low` were sent, and beyond it those in `sent`."""

    low: int
    sent: frozenset[int] = frozenset()

    @classmethod
    def parsed(cls, text: str) -> "FeedPosition":
        """Return the position of an event's id. Raises ValueError."""
        if len(text) > MAX_POSITION_LENGTH or not _POSITION.fullmatch(text):
            raise ValueError("no position")
        low, _, rest = text.partition(":")
        return cls(int(low), frozenset(int(low) + int(each) for each in rest.split(".") if each))

    @property
    def text(self) -> str:
        """The id of an event; where too many are unsettled, the last of them: rather repeated than lost."""
        parts = [str(each - self.low) for each in sorted(self.sent)]
        while sum(map(len, parts)) + len(parts) > MAX_POSITION_LENGTH - 20:
            del parts[: len(parts) // 2]
        return f"{self.low}:{'.'.join(parts)}" if parts else str(self.low)

    def with_sent(self, number: int) -> "FeedPosition":
        """Return the position behind the event with this id."""
        return FeedPosition(self.low, self.sent | {number})

    def settled(self, low: int) -> "FeedPosition":
        """Return the position when all events up to the id `low` have appeared and were sent."""
        return FeedPosition(max(low, self.low), frozenset(each for each in self.sent if each > low))


@dataclass(frozen=True, slots=True)
class _Found:
    """What has changed since a position."""

    events: list[tuple[int, str, Any]]  # (id, id of the session or cluster, event as the API shows it)
    waits: Waits
    sessions: Mapping[str, Any]
    low: int  # up to which all events have appeared
    is_whole: bool  # nothing is left to be read


async def events_of_all(
    owner_id: int, position: FeedPosition | None, show: Show, show_event: Callable[[SessionEvent], Any]
) -> AsyncGenerator[ServerSentEvent]:
    """Yield `ready`, then changes of status and of waiting of the owner's sessions from `position`, or from now on."""
    async with Changes(None, owner_id) as changes:
        at, now_position = await database_sync_to_async(_begin)(owner_id)
        position = position or now_position
        sent: Waits = await database_sync_to_async(_waits)(owner_id)
        yield ServerSentEvent(name="ready", id=position.text, data={"at": at})
        while True:
            found = await database_sync_to_async(_read)(owner_id, position, sent, show, show_event)
            for number, session_id, event in found.events:
                position = position.with_sent(number)
                data = {"event": event, "session": found.sessions.get(session_id)}
                yield ServerSentEvent(name="status", id=position.text, data=data)
            with_status = {session_id for _, session_id, _ in found.events}
            for session_id, words in found.waits.items():
                if sent.get(session_id) != words and session_id not in with_status and session_id in found.sessions:
                    yield ServerSentEvent(name="wait", data={"event": None, "session": found.sessions[session_id]})
            sent = found.waits
            if found.is_whole:
                position = position.settled(found.low)
                await changes.wait(POLL_SECONDS)


def _begin(owner_id: int) -> tuple[datetime, FeedPosition]:
    """Return the time of the database, and the position behind all events that have appeared."""
    at: datetime = User.objects.values_list(Now(), flat=True).get(pk=owner_id)
    low = _settled_id()
    recent = SessionEvent.objects.filter(session__owner=owner_id, id__gt=low).values_list("id", flat=True)
    return at, FeedPosition(low, frozenset(recent))


def _settled_id() -> int:
    """Return the id up to which all events have appeared."""
    settled = SessionEvent.objects.filter(at__lt=Now() - SETTLED).order_by("-id")
    return settled.values_list("id", flat=True).first() or 0


def _waits(owner_id: int) -> Waits:
    waiting = Session.objects.mains().filter(owner=owner_id, status=Status.PENDING)
    rows = waiting.values_list("id", "reason", "detail", "eta", "eta_reason")
    return {pk: tuple(words) for pk, *words in rows}


def _read(
    owner_id: int, position: FeedPosition, sent: Waits, show: Show, show_event: Callable[[SessionEvent], Any]
) -> _Found:
    low = _settled_id()  # before the events are read, so that none up to it is missed
    rows = SessionEvent.objects.filter(session__owner=owner_id, id__gt=position.low).exclude(id__in=position.sent)
    rows = rows.annotate(head=Coalesce("session__cluster", "session")).select_related("actor").order_by("id")
    events = [(row.pk, row.head, show_event(row)) for row in rows[:MAX_EVENTS]]
    waits = _waits(owner_id)
    changed = {pk for pk, words in waits.items() if sent.get(pk) != words} | {pk for _, pk, _ in events}
    sessions = show(changed) if changed else {}
    return _Found(events, waits, sessions, low, is_whole=len(events) < MAX_EVENTS)
