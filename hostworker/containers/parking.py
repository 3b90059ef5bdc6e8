"""The host's side of parking: saves the containers of parked sessions, starts new ones from them, and clears up.

Idempotent, and resumed by the reconciler. Of a parked session there is its stopped container until that is saved, from
then on an image. Both may be there for a moment; neither, only where something else than the platform removed them.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from django.db import transaction

from accounts.policies import least
from hostworker.runtime_protocol import ContainerRuntimeError, Key, Runtime
from resources.amounts.units import MIB
from resources.kick import kick_scheduler
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session, StaleSessionError
from sessions.parking import services as parking

logger = logging.getLogger(__name__)

LOG_TAIL_LINES: Final = 1000
LOG_TAIL_CHARACTERS: Final = 64 * 1024
MIN_DISK_BYTES: Final = 64 * MIB  # for a session that had written all that it may: it starts, and is warned
FILES_LOST: Final = "Its host no longer has the files that were saved of it."
AT_REST: Final = (Status.PARKED, Status.PENDING)  # in other states, whoever starts or stops it sees to its container


class FilesLostError(ContainerRuntimeError):
    """Nothing is left of the container of a parked session."""


def finish_stop(session: Session) -> bool:
    """Move a TERMINATING session, whose container has stopped, to PARKED; return False if it is to end instead."""
    with transaction.atomic():
        rows = Session.objects.select_for_update(no_key=True).filter(pk=session.pk, attempt=session.attempt)
        current = rows.filter(status=Status.TERMINATING).first()
        if current is None or not current.is_parking:
            return False
        current.move_to(Status.PARKED, Reason(current.reason), current.detail)
        kick_scheduler()
    return True


def keep(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Save the container of a parked session, and remove it. The caller holds its lock.

    Raises ContainerRuntimeError; what there is then stays, for another try.
    """
    output = last_output(runtime, session_id, attempt)
    runtime.stop(session_id, attempt, 0)  # it may still run where the session was parked without its host
    written = runtime.saved_containers.save(session_id, attempt)
    parked = Session.objects.filter(pk=session_id, parked_attempt=attempt)
    parked.update(parked_bytes=written)
    if output:
        parked.filter(status=Status.PARKED).update(log_tail=output)
    runtime.remove(session_id, attempt)


def last_output(runtime: Runtime, session_id: str, attempt: int) -> str:
    """Return the end of what the container has written, as it is stored. Raises EngineUnreachableError."""
    return runtime.logs(session_id, attempt, LOG_TAIL_LINES).replace("\0", "")[-LOG_TAIL_CHARACTERS:]


def image_of(runtime: Runtime, session: Session) -> str:
    """Return the image that the session's container is created from: its own, or what was saved as it was parked.

    The caller holds its lock. Raises FilesLostError, or ContainerRuntimeError where it cannot be saved.
    """
    if not session.parked_attempt:
        return session.image.reference
    key = (session.pk, session.parked_attempt)
    if key in {(state.session, state.attempt) for state in runtime.containers()}:
        keep(runtime, *key)
    reference = runtime.saved_containers.reference(*key)
    if reference is None:
        raise FilesLostError(FILES_LOST)
    return reference


def disk_left(session: Session) -> int | None:
    """Return how many bytes its next container may write of what its policies allow; None where nothing limits it."""
    limit = least(session.policies, lambda policy: policy.disk_bytes)
    return None if limit is None else max(limit - session.parked_bytes, min(limit, MIN_DISK_BYTES))


def put_back(session: Session, failure: ContainerRuntimeError) -> bool:
    """Park a PREPARING session again that could not be resumed; return False if it was not parked, or has no files."""
    if not session.parked_attempt or isinstance(failure, FilesLostError):
        return False
    try:
        parking.return_parked(session, Reason.RESUME_FAILED, str(failure))
    except StaleSessionError:
        logger.debug("session %s: moved on by another", session.pk)
    return True


def at_rest(parked: Mapping[Key, Status], found: Collection[Key]) -> list[Key]:
    """Return the attempts whose containers are to be saved: there, and of sessions that nobody starts or stops."""
    return [key for key, status in parked.items() if key in found and status in AT_REST]


def clear_saved(runtime: Runtime, host: Host) -> None:
    """Delete what was saved of sessions that have ended, or were parked again since. Raises EngineUnreachableError."""
    saved = runtime.saved_containers
    if stored := saved.keys():
        live = Session.objects.filter(parked_on=host, ended_at=None).order_by()
        for key in stored - set(live.values_list("pk", "parked_attempt")):
            saved.discard(*key)
