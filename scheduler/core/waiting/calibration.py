"""Range of a start: where 8 of 10 starts came to lie, by how the last ones compared with what was told of them. Pure.

Conformal prediction (Vovk et al. 2005) on the ratio of the wait to the one expected: no model of how estimates err.
What is said of the next start is learned from starts that are over, of which the quick ones come first, and users
change; so the quantiles themselves follow what came true (adaptive conformal inference, Gibbs and Candes 2021). Where
even the widest one is missed, and while run times are not known, limits alone say the end of a range, or nothing does.
"""

from bisect import bisect_left, insort
from collections import deque
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Final, NamedTuple

OUTCOMES: Final = 200  # the last, by which a range is made
ROUNDING: Final = timedelta(minutes=5)  # of a range, outwards
MISSED: Final = 18  # thousandths by which a start outside of its range moves that end's quantile outwards
MET: Final = 2  # and one inside moves it back: at rest where 1 of 10 misses
MAX_OUTSIDE: Final = 400  # of an end's quantile, in thousandths from it
MAX_BEYOND: Final = 100  # of that of the later end: below zero, as far as misses go, what came true says no end
SMALL: Final = timedelta(minutes=5)  # added to both waits of a ratio, so that seconds make no large ones
# Outcomes before there are any, in thousandths.
_PRIOR: Final = 400, 550, 700, 850, 1000, 1000, 1150, 1300, 1600, 2000
_NEVER: Final = datetime.max.replace(tzinfo=UTC)  # end of a range that is not known
_EPOCH: Final = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


class StartRange(NamedTuple):
    """When a session is expected to start, and between which times 8 of 10 such sessions do."""

    likely: datetime
    starts_from: datetime
    starts_until: datetime


class Calibration:
    """Waits as parts of those expected, of the last starts, oldest first and in order."""

    def __init__(self) -> None:
        """Begin with what is usual elsewhere, which the first outcomes replace."""
        self._outcomes = deque(_PRIOR)
        self._sorted = sorted(_PRIOR)
        self._priors = len(_PRIOR)
        self._earlier = self._later = 100  # thousandths of the outcomes that are left outside at each end
        # By session that waits: when, what, and whether run times were known, without which limits alone say its end.
        self._estimates: dict[str, tuple[datetime, StartRange, bool]] = {}
        self._due: list[tuple[datetime, str]] = []  # heap of their ranges' ends: who waits then is late, and counts so

    def tell(
        self, session_id: str, now: datetime, likely: datetime, latest: datetime | None = None, *, is_known: bool = True
    ) -> StartRange | None:
        """Return the range of a session that waits, None while it is not known: as `range_of`.

        Its start will be judged by the first range that it is told. Once it was told one, it is told new ones.
        """
        self.advance(now)
        estimate = self._range_of(now, likely, latest, is_open=not is_known or self._later < 0)
        first = self._estimates[session_id][1].starts_until if session_id in self._estimates else _NEVER
        if first == _NEVER and (estimate.starts_until < _NEVER or session_id not in self._estimates):
            self.await_start(session_id, now, estimate, is_known=is_known)
        if estimate.starts_until < _NEVER:
            return estimate
        return None if first == _NEVER else self._range_of(now, likely, latest, is_open=False)

    def await_start(
        self, session_id: str, estimated_at: datetime, estimate: StartRange, *, is_known: bool = True
    ) -> None:
        """Judge the start of a session by what it was told at a time, and unless `is_known` is false the later end."""
        self._estimates[session_id] = estimated_at, estimate, is_known
        if estimate.starts_until < _NEVER:
            heappush(self._due, (estimate.starts_until, session_id))

    def forget(self, session_id: str) -> None:
        """Forget a session that does not wait any more, and has not started."""
        self._estimates.pop(session_id, None)

    def advance(self, now: datetime) -> None:
        """Count who still waits after the end of their range: nothing needs to be known of their start for that."""
        while self._due and self._due[0][0] < now:
            until, session_id = heappop(self._due)
            estimate = self._estimates.get(session_id)
            if estimate is not None and estimate[2] and estimate[1].starts_until == until:
                self._later = max(-MAX_BEYOND, self._later - MISSED)

    def start(self, session_id: str, started_at: datetime) -> bool:
        """Note that a session has started; return whether it was told anything."""
        self.advance(started_at)
        found = self._estimates.pop(session_id, None)
        if found is None:
            return False
        estimated_at, estimate, was_known = found
        is_early = started_at < estimate.starts_from
        self._earlier = max(0, self._earlier - MISSED) if is_early else min(MAX_OUTSIDE, self._earlier + MET)
        if was_known and started_at <= estimate.starts_until:
            self._later = min(MAX_OUTSIDE, self._later + MET)
        foreseen = max(estimate.likely, estimated_at) - estimated_at
        ratio = 1000 * (started_at - estimated_at + SMALL) // (foreseen + SMALL)
        self._outcomes.append(ratio)
        insort(self._sorted, ratio)
        if self._priors or len(self._outcomes) > OUTCOMES:
            del self._sorted[bisect_left(self._sorted, self._outcomes.popleft())]
            self._priors = max(0, self._priors - 1)
        return estimate.starts_until < _NEVER

    def range_of(
        self, now: datetime, likely: datetime, latest: datetime | None = None, *, is_known: bool = True
    ) -> StartRange | None:
        """Return the range of a start that is expected at a time, in steps of five minutes; limits say the latest.

        It ends there where run times are not known, or too many have waited beyond the ends of their ranges; None where
        limits say nothing then. Changes nothing, as several threads may ask.
        """
        estimate = self._range_of(now, likely, latest, is_open=not is_known or self._later < 0)
        return estimate if estimate.starts_until < _NEVER else None

    def _range_of(self, now: datetime, likely: datetime, latest: datetime | None, *, is_open: bool) -> StartRange:
        """Return the range; `is_open`: limits alone say its end, without them it is `_NEVER`."""
        expected = max(likely, now) - now + SMALL
        below, above = (len(self._sorted) * max(0, outside) // 1000 for outside in (self._earlier, self._later))
        earliest, longest = (self._sorted[at] * expected // 1000 - SMALL for at in (below, -1 - above))
        begin = now + max(timedelta(), min(earliest, likely - now))
        if is_open and latest is None:
            return StartRange(likely, _floor(begin), _NEVER)
        ends = [end for end in (latest, None if is_open else now + longest) if end is not None]
        return StartRange(likely, _floor(begin), -_floor_delta(_EPOCH - max(min(ends), likely)) + _EPOCH)


def _floor(moment: datetime) -> datetime:
    return _EPOCH + _floor_delta(moment - _EPOCH)


def _floor_delta(span: timedelta) -> timedelta:
    return span // ROUNDING * ROUNDING
