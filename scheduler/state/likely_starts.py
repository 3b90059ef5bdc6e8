"""When sessions that wait are likely to start, as they are told, and what that is learned from. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from scheduler.core.types import RunningSession, SessionRequest
from scheduler.core.waiting.calibration import ROUNDING, Calibration, StartRange
from scheduler.core.waiting.forecast import StartEstimate
from scheduler.core.waiting.run_times import RunTimes
from sessions.estimates.starts import NewEstimate

MAX_NEW: Final = 500  # sessions of which something new is told at once


class LikelyStarts:
    """The past of a scheduler state, by which its requests are predicted, and the ranges told of their starts."""

    def __init__(self, past: RunTimes, calibrations: dict[int, Calibration]) -> None:
        """Begin with what the database knows."""
        self.past = past
        self._calibrations = calibrations
        self._estimates: dict[str, StartRange] = {}  # by session that waits: as written last by this process

    def of_group(self, group_id: int) -> Calibration:
        """Return how the starts of a group compare with what was told."""
        return self._calibrations.setdefault(group_id, Calibration())

    def advance(self, now: datetime) -> None:
        """Count who still waits after what was told: before ranges are made by other threads, which change nothing."""
        for calibration in list(self._calibrations.values()):
            calibration.advance(now)

    def note_ends(self, ended: Iterable[RunningSession], now: datetime) -> None:
        """Learn how long sessions have run that have ended since the last pass."""
        for session in ended:
            self.past.note(session, now)

    def forget(self, request: SessionRequest) -> None:
        """Forget what was told of a session that does not wait any more."""
        self._estimates.pop(request.id, None)
        self.of_group(request.group_id).forget(request.id)

    def start(self, group_id: int, session_ids: Iterable[str], now: datetime) -> list[str]:
        """Learn from starts how right it was what was told; return the ids of the sessions that were told something."""
        calibration = self.of_group(group_id)
        estimated = [session_id for session_id in session_ids if calibration.start(session_id, now)]
        for session_id in estimated:
            self._estimates.pop(session_id, None)
        return estimated

    def tell(
        self,
        group_id: int,
        queued: Mapping[str, SessionRequest],
        likely: Mapping[str, datetime],
        latest: Mapping[str, StartEstimate],
        now: datetime,
        running: int,
    ) -> list[NewEstimate]:
        """Return the ranges that say something new, to be written; from now on they count as told.

        `running` is how many sessions run. One that may start in several groups is told by the pass over the one
        that it prefers.
        """
        calibration, found = self.of_group(group_id), list[NewEstimate]()
        is_known = self.past.is_known_beside(running)
        for session_id, at in likely.items():
            request = queued.get(session_id)
            if len(found) == MAX_NEW:
                break  # the next pass goes on
            if request is None or request.is_alternative:
                continue
            limit = latest.get(session_id)
            estimate = calibration.tell(session_id, now, at, limit.at if limit else None, is_known=is_known)
            if estimate is not None and _is_new(self._estimates.get(session_id), estimate, now):
                found.append(NewEstimate(session_id, *estimate, is_by_limits=not is_known))
                self._estimates[session_id] = estimate
        return found


def _is_new(old: StartRange | None, new: StartRange, now: datetime) -> bool:
    """Return whether a range differs by more than the rounding, and by a tenth of the time until its end."""
    if old is None:
        return True
    least = max(ROUNDING, (old.starts_until - now) / 10) if old.starts_until > now else timedelta()
    return max(abs(new.starts_from - old.starts_from), abs(new.starts_until - old.starts_until)) > least
