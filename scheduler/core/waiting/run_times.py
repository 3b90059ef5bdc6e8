"""Predicted run times: how long a session is likely to hold its host, by what ended before of its like. Pure.

Tsafrir, Etsion and Feitelson (2007) take the mean of the last two runs of a user. Here it is the median of the last 20
runs of the closest like that has two, so that a single run that failed at once does not turn it. What outlives its
prediction is corrected: to the median of the runs that were longer, then in steps.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from scheduler.core.types import OVERDUE_GRACE, RunningSession, SessionRequest

RUNS: Final = 20  # of each like, the last
ENOUGH: Final = 2  # runs of a like by which it is preferred to a wider one
MAX_LIKES: Final = 5_000  # those with no run for longest are forgotten
SECOND: Final = timedelta(seconds=1)
# Predictions are one of these minutes, or whole weeks: few queues to look at, and nobody's run times to the minute.
STEPS: Final = tuple(
    60 * minutes
    for minutes in (
        *(1, 2, 3, 5, 7, 10, 15, 20, 30, 45),
        *(60, 90, 120, 180, 240, 360, 480, 720, 1080, 1440, 2160, 2880, 4320),
    )
)
MANY: Final = 1_000  # runs that say enough of run times, however many sessions run
WEEK: Final = 7 * 24 * 3600

Like = tuple[str | int | None, ...]  # what sessions have in common that run for similar times


def stem_of(name: str) -> str:
    """Return a name without the number at its end, as the tasks of an array and the runs of a script share it."""
    return name.rstrip("0123456789").rstrip("-_. ")


def likes_of(session: SessionRequest | RunningSession) -> Iterator[Like]:
    """Yield what the past of a session is looked up by, the closest first."""
    fgpu = session.each[2] if isinstance(session, SessionRequest) else session.fgpu_milli
    owner, project, image = session.owner_id, session.project_id, session.image_id
    yield "name", owner, session.stem, fgpu
    yield "project and image of an owner", owner, project, image, fgpu
    yield "image of an owner", owner, image
    yield "owner", owner
    if project is not None:
        yield "project", project
    yield "image", image, fgpu
    yield ("all",)


class RunTimes:
    """The last run times, in seconds, of each like; bounded."""

    def __init__(self) -> None:
        """Begin without a past."""
        self._runs: OrderedDict[Like, tuple[int, ...]] = OrderedDict()  # replaced, so that other threads may read
        self._ended = 0  # sessions noted
        self._known: dict[Like, timedelta | None] = {}  # predictions of what has not run yet, until a session ends

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._runs)

    def note(self, session: RunningSession, ended_at: datetime) -> None:
        """Note a session that has ended."""
        self._known.clear()
        self._ended += 1
        seconds = max(0, (ended_at - session.started_at) // SECOND)
        for like in likes_of(session):
            self._runs[like] = (*self._runs.get(like, ())[1 - RUNS :], seconds)
            self._runs.move_to_end(like)
        while len(self._runs) > MAX_LIKES:
            self._runs.popitem(last=False)

    def is_known_beside(self, running: int) -> bool:
        """Return whether as many sessions have ended as run: while most of all still run, those that ended are the
        short ones, and say little of the others.
        """
        return self._ended >= min(running, MANY)

    def predict(self, session: SessionRequest | RunningSession, ran: timedelta = timedelta()) -> timedelta | None:
        """Return how long a session is likely to run in all, of which `ran` have passed; None if nothing is known."""
        found = [known for like in likes_of(session) if (known := self._runs.get(like))]
        if not found:
            return None
        by_now = ran // SECOND
        runs = sorted(next((known for known in found if len(known) >= ENOUGH), found[0]))
        longer = runs[bisect_right(runs, by_now) :] if by_now else runs
        return SECOND * _step(longer[(len(longer) - 1) // 2] if longer else 2 * by_now, by_now)

    def _of_new(self, request: SessionRequest) -> timedelta | None:
        """As `predict`, of one that waits: many wait that are alike. Several threads may ask, while sessions end."""
        if not self._runs:
            return None
        alike = request.owner_id, request.project_id, request.image_id, request.each[2], request.stem
        try:
            return self._known[alike]
        except KeyError:
            found = self.predict(request)
        if len(self._known) >= MAX_LIKES:
            self._known.clear()
        self._known[alike] = found
        return found

    def predicted(self, request: SessionRequest) -> SessionRequest:
        """Return a request, and what else is the same session, with its predicted run time."""
        known = self._of_new(request)
        others = tuple(other._replace(predicted=known) for other in request.alternatives)
        return request._replace(predicted=known, alternatives=others)

    def bounded(self, request: SessionRequest) -> SessionRequest:
        """Return a request that runs no longer than predicted."""
        known = [bound for bound in (request.duration, self._of_new(request)) if bound is not None]
        return request._replace(duration=min(known, default=None))

    def end_of(self, session: RunningSession, now: datetime) -> datetime | None:
        """Return when a session is likely to end, no later than at its limits; None: as these say."""
        predicted = self.predict(session, max(timedelta(), now - session.started_at))
        limit = session.ends_at
        if predicted is None or (limit is not None and limit < now - OVERDUE_GRACE):
            return None
        end = max(now, session.started_at + predicted)
        return end if limit is None else min(end, max(limit, now))


def _step(seconds: int, by_now: int) -> int:
    """Return the first step that is no less, and more than what has passed."""
    least = max(seconds, by_now + 1)
    position = bisect_left(STEPS, least)
    return STEPS[position] if position < len(STEPS) else -(-least // WEEK) * WEEK
