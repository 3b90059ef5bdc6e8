"""Ends of sessions that can be undone: asked for, undone, and carried out once they are due."""

import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils.translation import gettext, ngettext

from accounts import audit
from accounts.models import User
from resources import clock
from sessions import notify
from sessions.launching import services
from sessions.lifecycle import LIVE, Status
from sessions.models import RequestedEnd, Session

logger = logging.getLogger(__name__)

UNDO_SPAN: Final = timedelta(seconds=5)
BACKOFF: Final = timedelta(seconds=10)  # after an end that the database refuses; doubled by each further refusal
BACKOFF_LIMIT: Final = timedelta(minutes=5)


def request_end(session: Session, *, actor: User) -> bool:
    """Have the session end in UNDO_SPAN unless that is undone; asked for again, or ending already, it ends at once.

    Return whether it can be undone.
    """
    with transaction.atomic():
        due_at = clock.now() + UNDO_SPAN
        end, is_new = RequestedEnd.objects.get_or_create(session=session, defaults={"actor": actor, "due_at": due_at})
        if not is_new or not _goes_on(session):
            end.delete()  # there is nothing to undo any more
            services.terminate(session, actor=actor)
            return False
        if actor != session.owner:
            audit.record(actor, "end", session, {"ends at": (None, due_at.isoformat(timespec="seconds"))})
        _send_change(session)
    return True


def requested_end_of(session: Session) -> RequestedEnd | None:
    """Return the end of the session that can still be undone; a query, unless it was selected with it."""
    return getattr(session, "requested_end", None) if _goes_on(session) else None


def undo(session_ids: Collection[str], *, actor: User) -> list[Session]:
    """Let these sessions go on, and return those that do: who asked for an end may undo it, and superadmins any."""
    with transaction.atomic():
        found = RequestedEnd.objects.filter(session__in=session_ids).select_related("session__owner")
        locked = found.select_for_update(of=("self",)).order_by("pk")
        ends = [end for end in locked if end.may_be_undone_by(actor) and _goes_on(end.session)]
        for end in ends:
            RequestedEnd.objects.filter(pk=end.pk).delete()  # which leaves `end.session` as it is
            if actor != end.session.owner:
                audit.record(actor, "undo end", end.session, {"ends at": (str(end.due_at), None)})
            _send_change(end.session)
    return [end.session for end in ends]


def undone_text(kept: list[Session]) -> str:
    """Return a sentence about what `undo` has returned, in the active language."""
    if not kept:
        return gettext("Nothing to undo: it has ended, or goes on already.")
    text = ngettext("%(name)s goes on.", "%(count)s sessions go on.", len(kept))
    return text % {"name": kept[0].full_name, "count": len(kept)}


def end_due() -> None:
    """End the sessions whose time to undo is over. Safe to run twice, and at the same time."""
    due = RequestedEnd.objects.filter(due_at__lte=clock.now()).order_by("due_at")
    for session_id, failures in list(due.values_list("pk", "failures")):
        try:
            _end(session_id)
        except services.REFUSALS:  # which is no reason to leave the others running
            if not failures:
                logger.exception("session %s: its end was asked for, and failed", session_id)
            pause = min(BACKOFF_LIMIT, BACKOFF * 2 ** min(failures, 10))
            later = {"failures": failures + 1, "due_at": clock.now() + pause}
            RequestedEnd.objects.filter(pk=session_id, failures=failures).update(**later)


@transaction.atomic
def _end(session_id: str) -> None:
    """End the session, unless that was undone meanwhile or another does it."""
    found = RequestedEnd.objects.filter(pk=session_id).select_related("session__owner", "actor")
    end = found.select_for_update(of=("self",), skip_locked=True).first()
    if end is None:
        return
    if not end.session.is_final or not end.session.rank:  # of a cluster whose first has ended, the others end
        services.terminate(end.session, actor=end.actor)
    end.delete()


def _goes_on(session: Session) -> bool:
    """Return whether it has not ended, and is not being ended."""
    return session.whole_status in LIVE - {Status.TERMINATING}


def _send_change(session: Session) -> None:
    notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])
