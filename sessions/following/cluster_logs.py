"""Follows the output of all members of a cluster as one, each line with the member that wrote it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Any, Final

from restapi.streams import ServerSentEvent
from sessions.following import merged_logs
from sessions.following.merged_logs import MergedLog, Places
from sessions.lifecycle import Result
from sessions.models import MAX_MEMBERS, Session

RANKS: Final = frozenset(map(str, range(MAX_MEMBERS)))


def places_of(text: str) -> Places:
    """Return the places, by rank, that the id of an event tells. Raises ValueError."""
    return merged_logs.places_of(text, RANKS.__contains__, MAX_MEMBERS)


class ClusterLogFollower:
    """The output of all members, from a place on in that of each, until the last has ended."""

    def __init__(self, members: Sequence[Session], resumed: Places, tail: int) -> None:
        self._members = members
        self._log = MergedLog(attrgetter("member_name"), resumed, tail)

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield `output` with lines, and `end` with the status of the whole and of each member."""
        for member in self._members:
            self._log.add(str(member.rank), member)
        async with aclosing(self._log.outputs()) as outputs:
            async for event in outputs:
                yield event
        names = {str(member.rank): member.member_name for member in self._members}
        if ends := {names[rank]: end for rank, end in self._log.ends.items()}:
            yield ServerSentEvent(name="end", data=_end_of_all(ends))


def _end_of_all(ends: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of the first member, but of the first that failed its result; and that of each by its name."""
    by_rank = [ends[name] for name in sorted(ends, key=lambda name: (not name.startswith("main"), len(name), name))]
    failed = [end for end in by_rank if end["result"] == Result.FAILURE and end["exit_code"]]
    return {**(failed or by_rank)[0], "status": by_rank[0]["status"], "members": dict(ends)}
