"""Take a host out of service without surprising the owners of what runs on it."""

import logging
from datetime import datetime

from django.db import transaction

from accounts import audit
from accounts.models import User
from resources import clock
from resources.hosts import services as hosts
from resources.models import Host
from sessions import notify
from sessions.lifecycle import HOSTED, Reason
from sessions.models import Session, SessionEvent

logger = logging.getLogger(__name__)


def sessions_on(host: Host) -> "list[Session]":
    """Return the sessions that hold resources of the host, those of the same owner together; one query."""
    found = Session.objects.filter(host=host, status__in=HOSTED)
    return list(
        found.select_related("owner__policy", "project__policy", "resource_group", "host", "image").order_by(
            "owner__email", "name"
        )
    )


def drain(host: Host, *, end_at: datetime | None, reason: str, actor: User | None) -> list[Session]:
    """Place no more sessions on the host, and end those that are left at `end_at`, or let them finish if it is None.

    Return the sessions on it; the timeline of each tells its owner, of a cluster that of its first member. A second
    drain replaces the first. Without an actor the platform does it by itself.
    """
    with audit.act_for_other(None, actor, "drain", host), transaction.atomic():
        hosts.set_drain(host, end_at=end_at, reason=reason)
        sessions = sessions_on(host)
        heads = Session.objects.filter(pk__in=[session.cluster_id or session.pk for session in sessions])
        if end_at is not None:
            SessionEvent.objects.bulk_create(_event(session, host, end_at, actor) for session in heads)
        notify.sessions_changed([(session.pk, session.owner_id, session.project_id) for session in heads])
    logger.info("host %s: drained by %s, %d sessions left, end at %s", host, actor, len(sessions), end_at)
    return sessions


def undrain(host: Host, *, actor: User) -> None:
    """Place sessions on the host again, which ends a drain."""
    with audit.act(actor, "uncordon", host):
        hosts.cordon(Host.objects.filter(pk=host.pk), cordoned=False)


def _event(session: Session, host: Host, end_at: datetime, actor: User | None) -> SessionEvent:
    why = f" ({host.cordon_reason})" if host.cordon_reason else ""
    text = f"Its host is taken out of service{why}: it ends at {end_at:%Y-%m-%d %H:%M} UTC at the latest."
    if session.cluster_id is not None:
        text = (
            f"The host {host} of its cluster is taken out of service{why}: "
            f"it ends at {end_at:%Y-%m-%d %H:%M} UTC at the latest."
        )
    return SessionEvent(
        session=session,
        at=clock.now(),
        old_status=session.status,
        new_status=session.status,
        reason=Reason.HOST_DRAINED.value,
        detail=text[:300],
        actor=actor,
    )
