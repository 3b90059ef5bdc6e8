"""How long a deployment took to wake, and with what: for its list of events."""

from datetime import datetime

from deployments import events
from deployments.models import Deployment, Replica
from deployments.services import locked
from sessions.lifecycle import Status
from sessions.models import SessionEvent


def note(deployment: Deployment) -> bool:
    """Record the parts of the cold start of a deployment that has woken; False where that was done already."""
    with locked(deployment) as row:
        taking = row.replica_rows.all().taking_requests().select_related("session")
        first = taking.order_by("healthy_at").first()
        if row.waking_since is None or first is None:
            return False
        events.record(row, words(row.waking_since, first))
        row.waking_since = None
        row.save(update_fields=["waking_since"])
        events.changed(row.pk)  # what finds no replica from now on need not wait for one
    return True


def words(since: datetime, replica: Replica) -> str:
    """Return in English how long each part took of the first replica that is healthy."""
    reached: dict[str, datetime] = {}
    moves = SessionEvent.objects.filter(session=replica.session, at__gte=since).exclude(old_status="")
    for event in moves.order_by("at", "pk"):
        reached.setdefault(event.new_status, event.at)
    ready_at = replica.healthy_at
    if ready_at is None or ready_at < since:  # it was still there, and only takes requests again
        return "Awake at once: its replica had not ended yet."
    placed_at, running_at = reached.get(Status.SCHEDULED, since), reached.get(Status.RUNNING, since)
    begun = "resumed" if replica.session.parked_attempt else "started"
    return (
        f"Awake after {_seconds(since, ready_at)}: {_seconds(since, placed_at)} queued,"
        f" {_seconds(placed_at, running_at)} until {begun}, {_seconds(running_at, ready_at)} until healthy."
    )


def _seconds(begin: datetime, end: datetime) -> str:
    return f"{max(0.0, (end - begin).total_seconds()):.1f} s"
