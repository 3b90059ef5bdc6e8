"""Ends of sessions that can be undone: asked for, undone, and carried out once they are due."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from django.db import transaction

from accounts import audit
from accounts.models import User
from resources import clock
from sessions import notify
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import RequestedEnd, Session

UNDO_SPAN: Final = timedelta(seconds=5)


def request_end(session: Session, *, actor: User) -> bool:
    """Have the session end in UNDO_SPAN unless that is undone; asked for again, end it at once.

    Return whether it can be undone.
    """
    with transaction.atomic():
        due_at = clock.now() + UNDO_SPAN
        _, is_new = RequestedEnd.objects.get_or_create(session=session, defaults={"actor": actor, "due_at": due_at})
        if is_new:
            if actor != session.owner:
                audit.record(actor, "end", session, {"ends at": (None, due_at.isoformat(timespec="seconds"))})
            _send_change(session)
        else:
            services.terminate(session, actor=actor)
    return is_new


def requested_end_of(session: Session) -> RequestedEnd | None:
    """Return the end of the session that can still be undone; a query, unless it was selected with it."""
    is_ending = session.is_final or session.status == Status.TERMINATING
    return None if is_ending else getattr(session, "requested_end", None)


def undo(session_ids: Collection[str], *, actor: User) -> list[Session]:
    """Let these sessions go on, and return those that do: who asked for an end may undo it, and superadmins any."""
    with transaction.atomic():
        found = RequestedEnd.objects.filter(session__in=session_ids).select_related("session__owner")
        locked = found.select_for_update(of=("self",)).order_by("pk")
        ends = [end for end in locked if end.may_be_undone_by(actor)]
        for end in ends:
            RequestedEnd.objects.filter(pk=end.pk).delete()  # which leaves `end.session` as it is
            if actor != end.session.owner:
                audit.record(actor, "undo end", end.session, {"ends at": (str(end.due_at), None)})
            _send_change(end.session)
    return [end.session for end in ends]


def end_due() -> None:
    """End the sessions whose time to undo is over. Safe to run twice, and at the same time."""
    while _end_first_due():
        pass


def _end_first_due() -> bool:
    """End the first session that is due, and return whether there was one."""
    with transaction.atomic():
        due = RequestedEnd.objects.filter(due_at__lte=clock.now()).select_related("session__owner", "actor")
        end = due.select_for_update(of=("self",), skip_locked=True).order_by("due_at").first()
        if end is None:
            return False
        if not end.session.is_final or not end.session.rank:  # of a cluster whose first has ended, the others end
            services.terminate(end.session, actor=end.actor)
        end.delete()
    return True


def _send_change(session: Session) -> None:
    notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])
