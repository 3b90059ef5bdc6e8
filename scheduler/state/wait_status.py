"""Wait statuses in the sessions' rows: written only where they say something new. Pure but for `write`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from scheduler.core.waiting.forecast import StartEstimate
from scheduler.snapshot.queue import WaitingSession
from sessions import notify
from sessions.models import WaitStatus, group_waits, lock_pending, write_wait_statuses

MIN_ETA_CHANGE: Final = timedelta(minutes=2)  # smaller changes of an estimate are not written
MIN_ETA_CHANGE_RATIO: Final = 0.1  # nor those smaller than this part of the time until it
MAX_TEXT_LENGTH: Final = 300  # of `detail` and `eta_reason` in a session's row


def needs_update(old: WaitStatus, new: WaitStatus, now: datetime) -> bool:
    """Return whether `new` differs enough from `old`, the stored status, to be written."""
    return (new.reason, new.detail[:MAX_TEXT_LENGTH]) != old[1:3] or _has_eta_changed(old.eta, new.eta, now)


def status_by_start(session_id: str, reason: str, detail: str, start: StartEstimate | None) -> WaitStatus:
    """Return the status of a session with an estimated start, if it has one."""
    return WaitStatus(session_id, reason, detail, start.at if start else None, start.eta_reason if start else "")


def as_stored(status: WaitStatus) -> WaitStatus:
    """Return the status as a row stores it: texts cut, the estimate in whole minutes."""
    return status._replace(
        detail=status.detail[:MAX_TEXT_LENGTH],
        eta=round_up_to_minute(status.eta),
        eta_reason=status.eta_reason[:MAX_TEXT_LENGTH],
    )


def write(statuses: Sequence[WaitStatus], waiting: Mapping[str, WaitingSession], group_id: int) -> None:
    """Write the statuses of sessions that wait for a group, and notify the owners' browsers; in a transaction.

    `waiting` are these sessions by id. Those that may start elsewhere too have an entry for each group.
    """
    alone = [status for status in statuses if not waiting[status.session_id].is_in_several]
    several = [status for status in statuses if waiting[status.session_id].is_in_several]
    if alone and several:  # of which each statement locks its own
        lock_pending(status.session_id for status in statuses)
    if alone:
        write_wait_statuses(alone)
    if several:
        group_waits.write(group_id, several)
    if statuses:
        requests = [waiting[status.session_id].request for status in statuses]
        notify.sessions_changed((request.id, request.owner_id, request.project_id) for request in requests)


def round_up_to_minute(moment: datetime | None) -> datetime | None:
    """Return the next whole minute, so that no session starts later than its estimate by rounding."""
    if moment is None:
        return None
    floor = moment.replace(second=0, microsecond=0)
    return floor if floor == moment else floor + timedelta(minutes=1)


def _has_eta_changed(old: datetime | None, new: datetime | None, now: datetime) -> bool:
    """Return whether the estimate appeared, disappeared or moved by more than the thresholds."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(MIN_ETA_CHANGE, MIN_ETA_CHANGE_RATIO * (old - now))
