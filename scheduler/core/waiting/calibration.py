"""Range of a start: where 8 of 10 starts came to lie, by how the last ones compared with what was told of them. Pure.

Conformal prediction (Vovk et al. 2005) on the ratio of the wait to the one expected: no model of how estimates err.
What is said of the next start is learned from starts that are over, of which the quick ones come first, and users
change; so the quantiles themselves follow what came true (adaptive conformal inference, Gibbs and Candes 2021).
"""

from bisect import bisect_left, insort
from collections import deque
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final, NamedTuple

OUTCOMES: Final = 200  # the last, by which a range is made
ROUNDING: Final = timedelta(minutes=5)  # of a range, outwards
MISSED: Final = 18  # thousandths by which a start outside of its range moves that end's quantile outwards
MET: Final = 2  # and one inside moves it back: at rest where 1 of 10 misses
MAX_OUTSIDE: Final = 400  # of an end's quantile, in thousandths from it
SMALL: Final = timedelta(minutes=5)  # added to both waits of a ratio, so that seconds make no large ones
# Outcomes before there are any, in thousandths.
_PRIOR: Final = 400, 550, 700, 850, 1000, 1000, 1150, 1300, 1600, 2000
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
        self._estimates: dict[str, tuple[datetime, StartRange]] = {}  # by session that waits: when, and what
        self._due: list[tuple[datetime, str]] = []  # heap of their ranges' ends: who waits then is late, and counts so

    def tell(self, session_id: str, now: datetime, likely: datetime, latest: datetime | None = None) -> StartRange:
        """Return the range of a session that waits; its start will be judged by the first one that it is told."""
        self.advance(now)
        estimate = self.range_of(now, likely, latest)
        if session_id not in self._estimates:
            self.await_start(session_id, now, estimate)
        return estimate

    def await_start(self, session_id: str, estimated_at: datetime, estimate: StartRange) -> None:
        """Judge the start of a session by what it was told at a time."""
        self._estimates[session_id] = estimated_at, estimate
        heappush(self._due, (estimate.starts_until, session_id))

    def forget(self, session_id: str) -> None:
        """Forget a session that does not wait any more, and has not started."""
        self._estimates.pop(session_id, None)

    def advance(self, now: datetime) -> None:
        """Count who still waits after the end of their range: nothing needs to be known of their start for that."""
        while self._due and self._due[0][0] < now:
            until, session_id = heappop(self._due)
            estimate = self._estimates.get(session_id)
            if estimate is not None and estimate[1].starts_until == until:
                self._later = _moved(self._later, is_missed=True)

    def start(self, session_id: str, started_at: datetime) -> bool:
        """Note that a session has started; return whether it was told anything."""
        self.advance(started_at)
        found = self._estimates.pop(session_id, None)
        if found is None:
            return False
        estimated_at, estimate = found
        self._earlier = _moved(self._earlier, is_missed=started_at < estimate.starts_from)
        if started_at <= estimate.starts_until:
            self._later = _moved(self._later, is_missed=False)
        foreseen = max(estimate.likely, estimated_at) - estimated_at
        ratio = 1000 * (started_at - estimated_at + SMALL) // (foreseen + SMALL)
        self._outcomes.append(ratio)
        insort(self._sorted, ratio)
        if self._priors or len(self._outcomes) > OUTCOMES:
            del self._sorted[bisect_left(self._sorted, self._outcomes.popleft())]
            self._priors = max(0, self._priors - 1)
        return True

    def range_of(self, now: datetime, likely: datetime, latest: datetime | None = None) -> StartRange:
        """Return the range of a start that is expected at a time, in steps of five minutes; limits say the latest.

        Changes nothing, as several threads may ask.
        """
        expected = max(likely, now) - now + SMALL
        below, above = (len(self._sorted) * outside // 1000 for outside in (self._earlier, self._later))
        earliest, longest = (self._sorted[at] * expected // 1000 - SMALL for at in (below, -1 - above))
        begin = now + max(timedelta(), min(earliest, likely - now))
        end = max(now + longest if latest is None else min(now + longest, latest), likely)
        return StartRange(likely, _floor(begin), -_floor_delta(_EPOCH - end) + _EPOCH)


def _moved(outside: int, *, is_missed: bool) -> int:
    return max(0, outside - MISSED) if is_missed else min(MAX_OUTSIDE, outside + MET)


def _floor(moment: datetime) -> datetime:
    return _EPOCH + _floor_delta(moment - _EPOCH)


def _floor_delta(span: timedelta) -> timedelta:
    return span // ROUNDING * ROUNDING
