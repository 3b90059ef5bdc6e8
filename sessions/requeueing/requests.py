"""Return sessions to the queue, as Slurm's `scontrol requeue`: what has not started yet, and running batch sessions."""

from django.db import transaction
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import User
from resources.kick import kick_scheduler
from sessions import notify
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import FINAL, Kind, Reason, Status
from sessions.models import Session, StaleSessionError
from sessions.requeueing import host_faults, preemption

UNSTARTED = (Status.SCHEDULED, Status.PREPARING)


def refusal(session: Session) -> str:
    """Return why the session cannot return to the queue; "" if it can. Of a cluster, that of its first member."""
    if session.parked_attempt:
        return _("Only the host that has its files can start it.")
    if session.cluster_id is not None and session.members.filter(status__in=FINAL, is_elastic=False).exists():
        return _("A member of it has ended.")
    if session.status in UNSTARTED or (session.status == Status.RUNNING and session.kind == Kind.BATCH):
        return ""
    if session.status == Status.RUNNING:
        return _("Only a batch session can run again from its beginning.")
    return _("It holds no place on a host.")


@audit.recorded_for_others("requeue")
def requeue(session: Session, *, actor: User) -> None:
    """Have the session wait again at its place in the queue, for another host if one fits.

    A running batch session is stopped first, and then runs again from its beginning. The other members of a cluster
    follow its first (`clusters.settling`). Raises RejectedError with a message for GENERAL.
    """
    session = session.main
    detail = f"Returned to the queue by {actor}."
    try:
        with transaction.atomic():
            session.refresh_from_db()
            if error := refusal(session):
                raise RejectedError({GENERAL: error})
            if session.status == Status.RUNNING:
                session.move_to(Status.TERMINATING, Reason.REQUEUED, detail, actor=actor)
                if session.host is not None:
                    notify.send_to_host(session.host.name, "stop_session", session.pk, session.attempt)
            else:
                avoided = host_faults.avoiding(session, session.host_id)
                fields = {**preemption.RETURNED, "avoided_hosts": avoided}
                session.move_to(Status.PENDING, Reason.REQUEUED, detail, actor=actor, fields=fields)
                kick_scheduler()
    except StaleSessionError:
        raise RejectedError({GENERAL: _("Its status has just changed; try again.")}) from None
