"""Place of a waiting session in its group's queue, by the state of this process. Writes nothing."""

from dataclasses import dataclass, replace
from datetime import datetime

from resources import clock
from scheduler.advice import estimate
from scheduler.core.queue.fair_share import DueParts, FairShares
from scheduler.core.types import Association, QueueOrder, association_of
from sessions.lifecycle import Status
from sessions.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """How many sessions are ahead, and in fair order the parts of the group's use, in percent."""

    ahead: int
    own_ahead: int  # of the same owner
    order: QueueOrder
    used_percent: int | None = None  # of all that was used lately, by its project, or by its owner without one
    fair_percent: int | None = None  # of what all who wait or run there are due, by weight
    member_used_percent: int | None = None  # of what its project used, by its owner; None without a project
    member_fair_percent: int | None = None  # of what the members of its project who wait or run there are due

    @property
    def is_fair(self) -> bool:
        """Whether use decides who is next."""
        return self.order == QueueOrder.FAIR


def place_of(session: Session) -> QueuePlace | None:
    """Return the place of a session; None where it waits for something else than its turn, or not at all.

    Takes a few queries, as it reads only what has changed.
    """
    if session.status != Status.PENDING:
        return None
    now = clock.now()
    with estimate.cache_lock:
        state = estimate.state_cache.take(now)
        state.serve(now)  # its placements stay unconfirmed, and are read again the next time
        estimate.state_cache.put_back(state)
        queue = state.incremental
        if session.pk not in queue.requests:
            return None
        group_id = queue.requests[session.pk].group_id  # the preferred one of several
        ahead = queue.ahead_of(session.pk, now)
        shares = queue.fair_shares_of(group_id)
        own = sum(request.owner_id == session.owner_id for request in ahead)
        if shares is None:
            return QueuePlace(ahead=len(ahead), own_ahead=own, order=QueueOrder.FIFO)
        due = shares.due(queue.associations_in(group_id))
        place = QueuePlace(ahead=len(ahead), own_ahead=own, order=QueueOrder.FAIR)
        mine = association_of(queue.requests[session.pk])
        used, fair = _percents(shares, mine.branch, due, now)
        place = replace(place, used_percent=used, fair_percent=fair)
        if mine.project_id:
            used, fair = _percents(shares, mine, due, now)
            place = replace(place, member_used_percent=used, member_fair_percent=fair)
        return place


def _percents(shares: FairShares, holder: Association, due: DueParts, now: datetime) -> tuple[int, int]:
    """Return what part an association has used, of what it and its siblings have, and what part it is due."""
    parts = shares.parts(now, holder.parent)
    used = parts.get(holder, 0.0) / (sum(parts.values()) or 1.0)
    return round(100 * used), round(100 * due[holder])
