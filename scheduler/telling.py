"""What those who wait are told: written only where it says something new. Pure but for `write`."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from scheduler.snapshot import Loaded
from scheduler.terms import Waiting
from sessions import notify
from sessions.models import Session, Told

SMALL: Final = timedelta(
    minutes=2
)  # an estimate that moves by less, or by less than this part of the way, is as it was
SMALL_PART: Final = 0.1
LONGEST: Final = 300  # characters that a session's row keeps


def news(loaded: Loaded, waiting: Iterable[Waiting], now: datetime) -> list[Told]:
    """Return what differs from what the sessions' rows say."""
    found = [Told(one.session_id, one.reason.value, one.detail[:LONGEST], one.eta, one.because) for one in waiting]
    changed = []
    for new in (*found, *loaded.held):
        old = loaded.told[new.session_id]
        if new[:3] != old[:3] or _moved(old.eta, new.eta, now):
            changed.append(new._replace(eta=whole_minute(new.eta), because=new.because[:LONGEST]))
    return changed


def write(loaded: Loaded, told: list[Told]) -> None:
    """Write it in one statement, and have the browsers look again; a backlog that stands still writes nothing."""
    if told:
        Session.objects.explain_waiting(told)
        notify.sessions_changed([(new.session_id, loaded.owner_of[new.session_id]) for new in told])


def whole_minute(moment: datetime | None) -> datetime | None:
    """Return the next whole minute, so that nobody starts later than they were told."""
    if moment is None:
        return None
    begun = moment.replace(second=0, microsecond=0)
    return begun if begun == moment else begun + timedelta(minutes=1)


def _moved(old: datetime | None, new: datetime | None, now: datetime) -> bool:
    """Say whether the estimate is another one: it came, went, passed without a start, or moved by much."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(SMALL, SMALL_PART * (old - now))
