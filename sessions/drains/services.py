"""Take a host out of service without surprising the owners of what runs on it."""

import logging
from datetime import datetime

from django.db import transaction

from accounts import audit
from accounts.models import User
from resources import clock
from resources.hosts import services as hosts
from resources.kick import kick_scheduler
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
        _tell(host, end_at, actor)
    logger.info("host %s: drained by %s, %d sessions left, end at %s", host, actor, len(sessions), end_at)
    return sessions


def leave(host: Host, *, end_at: datetime, reason: str) -> None:
    """Have the host drain itself, as it does before a Slurm job ends of which it is; a drain that ends sooner stands.

    It may with the rights of a host that has joined: nothing is recorded as an act of an administrator.
    """
    with transaction.atomic():
        host = Host.objects.select_for_update().get(pk=host.pk)
        if host.drain_by is not None and host.drain_by <= end_at:
            return
        host.is_cordoned, host.cordon_reason, host.drain_by = True, reason, end_at
        host.save(update_fields=["is_cordoned", "cordon_reason", "drain_by"])
        kick_scheduler()
        _tell(host, end_at, None)
    logger.info("host %s: leaves, its sessions end at %s", host, end_at)


def undrain(host: Host, *, actor: User) -> None:
    """Place sessions on the host again, which ends a drain."""
    with audit.act(actor, "uncordon", host):
        hosts.cordon(Host.objects.filter(pk=host.pk), cordoned=False)


def _tell(host: Host, end_at: datetime | None, actor: User | None) -> None:
    """Tell the owners of what runs on the host when it ends."""
    hosted = Session.objects.filter(host=host, status__in=HOSTED).values_list("cluster_id", "pk")
    mains = Session.objects.filter(pk__in=[cluster_id or pk for cluster_id, pk in hosted])
    if end_at is not None:
        SessionEvent.objects.bulk_create(_event(session, host, end_at, actor) for session in mains)
    notify.sessions_changed([(session.pk, session.owner_id, session.project_id) for session in mains])


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
