"""What sessions are noted and told while they go on: events on their timelines, and messages in their terminals."""

from datetime import datetime, timedelta

from django.db import transaction

from accounts.models import User
from resources import clock
from sessions import notify
from sessions.lifecycle import Reason, Status
from sessions.models import Session


def note(
    session: Session, reason: Reason, detail: str, *, actor: User | None = None, at_most_every: timedelta | None = None
) -> bool:
    """Add an event to the timeline and tell the browsers; return whether that was done.

    The event has the status of now, which `session` need not know yet. Nothing is done for a session that is gone, or
    out of reach of this host. With `at_most_every`, the same reason, actor and detail within that time are one event.
    """
    now, detail = clock.now(), detail[:300]
    if at_most_every is not None:
        same = session.events.filter(reason=reason.value, actor=actor, detail=detail)
        if same.filter(at__gt=now - at_most_every).exists():
            return False
    status = Session.objects.filter(pk=session.pk).values_list("status", flat=True).first()
    if status is None:
        return False
    with transaction.atomic():
        session.events.create(
            at=now,
            old_status=status,
            new_status=status,
            reason=reason.value,
            detail=detail,
            actor=actor,
        )
        notify.sessions_changed((pk, session.owner_id, session.project_id) for pk in session.shown_by)
    return True


def note_once(session: Session, reason: Reason, detail: str, *, within: timedelta) -> bool:
    """As `note`, unless there is an event of this reason within that time, whatever its detail."""
    if session.events.filter(reason=reason.value, at__gt=clock.now() - within).exists():
        return False
    return note(session, reason, detail)


def show_in_terminals(session: Session, text: str, until: datetime) -> None:
    """Show the text until then in the terminals of a session that runs, and of the other members of its cluster."""
    running = session.members.filter(status=Status.RUNNING).values_list("pk", "attempt", "host__name")
    for pk, attempt, host in running:
        notify.send_to_host(host, "show_message", pk, attempt, text, until.timestamp())
