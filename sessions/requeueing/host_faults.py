"""Starts that fail by the host's fault: the session returns to the queue for another host, and the host is counted."""

import logging
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from django.db import transaction

from resources.hosts import health as host_health
from resources.kick import kick_scheduler
from resources.models import Host, ImageSource
from sessions.lifecycle import Reason, Status
from sessions.models import Session, StaleSessionError
from sessions.parking import services as parking

logger = logging.getLogger(__name__)

MAX_RETRIES: Final = 3
FIRST_PAUSE: Final = timedelta(seconds=10)  # before the second retry: the first may find another host at once
MAX_PAUSE: Final = timedelta(minutes=1)
VOUCHED_FOR: Final = frozenset({ImageSource.CATALOG, ImageSource.REGISTRY})  # images that an administrator has chosen


def note_failed_start(session: Session, reason: Reason, problem: str) -> None:
    """Return a PREPARING session to its old place in the queue, or end it for `reason` after MAX_RETRIES.

    The hosts that failed it are used again only if no other fits. The failure counts against the host unless users may
    have brought it with an image of their own: nobody can have hosts cordoned. `session.host` must be loaded. Raises
    StaleSessionError where the session has moved on.
    """
    host = session.host
    if host is None:
        raise StaleSessionError(f"session {session.pk}: has no host any more")
    with transaction.atomic():
        requeue(session, host, reason, problem)
        if session.image.source in VOUCHED_FOR:
            host_health.note_failure(host, problem, has_gpu=bool(session.fgpu))
        kick_scheduler()


def requeue(session: Session, host: Host, reason: Reason, problem: str) -> None:
    """Return a PREPARING session to the queue, or end it after MAX_RETRIES; nothing counts against the host.

    One that was parked is parked again instead: its files are not lost with a host's fault.
    """
    failures = session.start_failures + 1
    if failures > MAX_RETRIES:
        text = f"Not started in {failures} attempts, the last on host {host}."
        if session.parked_attempt:
            parking.return_parked(session, Reason.RESUME_FAILED, f"{text} {problem}")
            return
        session.move_to(Status.ERROR, reason, f"{text} {problem}"[:300], fields={"start_failures": failures})
        return
    text = f"Host {host} failed to start it; waiting for another."
    fields = {
        "host_id": None,
        "avoided_hosts": avoiding(session, host.pk),
        "start_failures": failures,
        "start_by": None,
    }
    session.move_to(Status.PENDING, Reason.HOST_FAULT, f"{text} {problem}"[:300], fields=fields)


def retry_at(session_id: str, start_failures: int, queued_at: datetime) -> datetime | None:
    """Return when a session that has returned to the queue at that time may be placed again, None if at once.

    Pauses double up to MAX_PAUSE, less up to a half, by which sessions that failed together are spread. This part
    follows from the arguments: whoever reads the row gets the same time.
    """
    if start_failures <= 1:
        return None
    pause = min(MAX_PAUSE, FIRST_PAUSE * (1 << min(start_failures - 2, 8)))
    digest = sha256(f"{session_id} {start_failures}".encode()).digest()
    return queued_at + pause * (1 - int.from_bytes(digest[:4]) / 2**33)


def avoiding(session: Session, failed_id: int | None) -> list[int]:
    """Return the ids of the hosts that the session avoids from now on, the one that has just failed it as the last."""
    others = [host_id for host_id in session.avoided_hosts if host_id != failed_id]
    return others if failed_id is None else [*others, failed_id]


def requeue_prepared(host: Host, problem: str) -> int:
    """Return the PREPARING sessions of a host that cannot start any now to the queue; return how many there were."""
    preparing = Session.objects.filter(host=host, status=Status.PREPARING).select_related("host")
    count = 0
    for session in preparing:
        try:
            with transaction.atomic():
                requeue(session, host, Reason.START_FAILED, problem)
                kick_scheduler()
            count += 1
        except StaleSessionError:
            logger.info("session %s: moved on before it was requeued", session.pk)
    return count
