"""What those who wait are told: written only where it says something new. Pure but for `write`."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from sessions import notify
from sessions.models import Session, WaitStatus

MIN_ETA_CHANGE: Final = timedelta(
    minutes=2
)  # an estimate that moves by less, or by less than this part of the way, is as it was
MIN_ETA_CHANGE_RATIO: Final = 0.1
MAX_TEXT_LENGTH: Final = 300  # characters that a session's row keeps


def needs_update(old: WaitStatus, new: WaitStatus, now: datetime) -> bool:
    """Say whether the session's row, which says `old`, is to say `new`."""
    return (new.reason, new.detail[:MAX_TEXT_LENGTH]) != old[1:3] or _moved(old.eta, new.eta, now)


def as_stored(status: WaitStatus) -> WaitStatus:
    """Return what a row keeps of it."""
    return status._replace(
        detail=status.detail[:MAX_TEXT_LENGTH],
        eta=round_up_to_minute(status.eta),
        eta_reason=status.eta_reason[:MAX_TEXT_LENGTH],
    )


def write(statuses: Sequence[WaitStatus], owner_of: Callable[[str], int]) -> None:
    """Write it in one statement, and have the browsers look again; a backlog that stands still writes nothing."""
    if statuses:
        Session.objects.write_wait_statuses(statuses)
        notify.sessions_changed([(new.session_id, owner_of(new.session_id)) for new in statuses])


def round_up_to_minute(moment: datetime | None) -> datetime | None:
    """Return the next whole minute, so that nobody starts later than they were told."""
    if moment is None:
        return None
    begun = moment.replace(second=0, microsecond=0)
    return begun if begun == moment else begun + timedelta(minutes=1)


def _moved(old: datetime | None, new: datetime | None, now: datetime) -> bool:
    """Say whether the estimate is another one: it came, went, passed without a start, or moved by much."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(MIN_ETA_CHANGE, MIN_ETA_CHANGE_RATIO * (old - now))
