"""Records who other than its owner enters a session, as events that the owner sees on its timeline."""

from datetime import timedelta
from typing import Final

from accounts.models import User
from sessions import notes
from sessions.lifecycle import Reason
from sessions.models import Session

REPEAT_AFTER: Final = timedelta(minutes=10)  # the same entry of the same person within this is one event


def record_entry(session: Session, actor: User | None, what: str) -> None:
    """Record that `actor` opened `what` of the session, such as "the terminal"; None is whoever has a share link.

    The owner's own entries are not recorded.
    """
    if actor is not None and actor.pk == session.owner_id:
        return
    detail = f"{actor or 'Somebody with a share link'} opened {what}."
    notes.note(session, Reason.ENTERED, detail, actor=actor, at_most_every=REPEAT_AFTER)
