"""Starts and stops sessions' containers and records the outcome. Idempotent; the reconciler resumes after a crash.

A start and a stop of the same session never overlap (`container_lock`); what each finds done by another, it leaves.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import QuerySet

from hostworker.containers import cluster_networks, folder_mounts, parking
from hostworker.containers.specs import spec_of
from hostworker.images import host_images
from hostworker.runtime.pull import PullText
from hostworker.runtime_protocol import (
    ContainerRuntimeError,
    ContainerState,
    EnforcementError,
    HasEndedError,
    ImageUnavailableError,
    MountError,
    Runtime,
    SaveError,
    StartError,
)
from resources.amounts.units import size_text
from resources.hosts import health as host_health
from resources.kick import kick_scheduler
from sessions import notes, notify
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import Session, StaleSessionError
from sessions.requeueing import cluster_restarts, host_faults, preemption
from sessions.revocation.withdrawal import withdraw

logger = logging.getLogger(__name__)

REFUSALS: Final[dict[type[ContainerRuntimeError], Reason]] = {
    ImageUnavailableError: Reason.IMAGE_UNAVAILABLE,
    MountError: Reason.MOUNT_FAILED,
    StartError: Reason.START_FAILED,
    SaveError: Reason.RESUME_FAILED,
    parking.FilesLostError: Reason.FILES_LOST,
    EnforcementError: Reason.ENFORCEMENT_FAILED,
}
STOP_GRACE_SECONDS: Final = 5
PARKING_GRACE_SECONDS: Final = 3  # others get its GPU within 5
CONTAINER_LOCK: Final = 0x434F4E54  # "CONT": the class of the advisory locks that guard a session's container
MEMORY_KILL_REPEAT: Final = timedelta(minutes=1)  # kills within this are one event
MAX_CONCURRENT_STARTS: Final = 4  # more only add latency on a small host: the engine is bound by CPU

_starting = threading.BoundedSemaphore(MAX_CONCURRENT_STARTS)
_preparing: set[tuple[str, int]] = set()  # attempts whose start is under way in this process, pulls included
_claiming = threading.Lock()


@dataclass(slots=True)
class _LastStart:
    """When this process last brought a session up, by the monotonic clock."""

    at: float = -math.inf


_last_start = _LastStart()


def is_preparing(session_id: str, attempt: int) -> bool:
    """Return whether this process is starting the attempt."""
    return (session_id, attempt) in _preparing


def is_any_preparing() -> bool:
    """Return whether this process is starting any session."""
    return bool(_preparing)


def seconds_since_start() -> float:
    """Return how long ago this process last brought a session up; infinity for never."""
    return time.monotonic() - _last_start.at


def claim(session_id: str, attempt: int) -> Session | None:
    """Return the attempt in PREPARING for `bring_up`; None where it is over, taken back, or under way here."""
    key = (session_id, attempt)
    with _claiming:
        if key in _preparing:
            return None
        _preparing.add(key)
    session = None
    try:
        session = _claim(session_id, attempt)
    finally:
        if session is None:
            _preparing.discard(key)
    return session


def give_up(session: Session) -> None:
    """Leave a claimed session, which is not brought up after all, to the reconciler."""
    _preparing.discard((session.pk, session.attempt))
    _last_start.at = time.monotonic()


def bring_up(runtime: Runtime, session: Session, *, is_image_here: bool = False) -> None:
    """Start the container of a claimed session, after a pull of its image unless that is here.

    The session ends RUNNING, PENDING for another host, or ERROR; after an error of the engine it stays PREPARING for
    the reconciler.
    """
    try:
        was_pulled = not (is_image_here or session.parked_attempt) and host_images.ensure(
            runtime, session.image, lambda text: _show_progress(session, text)
        )
        if was_pulled:
            _note_pull(session)
        with _starting, container_lock(session.pk):
            _run(runtime, session)
        if was_pulled and session.host:
            host_images.report(runtime, session.host)
    except tuple(REFUSALS) as failure:
        _note_refusal(runtime, session, REFUSALS[type(failure)], failure)
    except ContainerRuntimeError as failure:
        logger.warning("session %s: start interrupted, the reconciler will go on: %s", session.pk, failure)
    finally:
        give_up(session)


def stop(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Stop the container of a TERMINATING attempt and end the session."""
    with container_lock(session_id):
        session = _read(session_id, attempt, Status.TERMINATING)
        if session is None:
            return
        withdraw(session_id)  # before the engine gives its address to another
        try:
            runtime.stop(session_id, attempt, PARKING_GRACE_SECONDS if session.is_parking else STOP_GRACE_SECONDS)
        except ContainerRuntimeError as failure:
            logger.warning("session %s: stop interrupted, the reconciler will go on: %s", session_id, failure)
            return
    if session.is_parking and parking.finish_stop(session):
        keep_parked(runtime, session_id, attempt)
    elif current := _read(session_id, attempt, Status.TERMINATING):  # it may have been told to end instead
        _conclude(runtime, current)
        _clear(runtime, current)
    else:
        _clear(runtime, session)


def keep_parked(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Save the container of a session that is parked, and remove it; a failure is left to the reconciler."""
    with container_lock(session_id):
        resting = Session.objects.filter(pk=session_id, parked_attempt=attempt, status__in=parking.AT_REST)
        if not resting.exists():
            return
        try:
            parking.keep(runtime, session_id, attempt)
        except ContainerRuntimeError as failure:
            logger.warning("session %s: container not saved yet, the reconciler will go on: %s", session_id, failure)


def note_exit(runtime: Runtime, state: ContainerState) -> None:
    """End the session whose container has exited, stopped or by itself; ignore other containers."""
    session = _read(state.session, state.attempt, Status.RUNNING, Status.TERMINATING)
    if session is None:
        return
    fields = {"exit_code": state.exit_code}
    if session.status == Status.TERMINATING:  # the stop that is in progress removes the container, or saves it
        if not session.is_parking:
            _conclude(runtime, session, fields)
    elif state.out_of_memory:
        detail = "The session needed more memory than it had and was ended by the kernel."
        _finish(runtime, session, Status.ERROR, Reason.OUT_OF_MEMORY, detail, fields)
    elif state.exit_code == 0:
        _finish(runtime, session, Status.TERMINATED, Reason.CONTAINER_EXITED, "Its main process ended.", fields)
    else:
        detail = f"Its main process ended with exit code {state.exit_code}."
        _finish(runtime, session, Status.ERROR, Reason.CONTAINER_EXITED, detail, fields)


def note_memory_kill(session_id: str, attempt: int) -> None:
    """Note on the timeline that the kernel has killed a process of a RUNNING session at its memory limit."""
    if session := _read(session_id, attempt, Status.RUNNING):
        detail = f"Out of memory: a process was killed, because the session had used its {size_text(session.memory)}."
        notes.note(session, Reason.PROCESS_OUT_OF_MEMORY, detail, at_most_every=MEMORY_KILL_REPEAT)


def note_lost(runtime: Runtime, session: Session) -> None:
    """End a RUNNING session whose container is gone from the engine."""
    _finish(runtime, session, Status.ERROR, Reason.CONTAINER_LOST, "Its container was removed outside the platform.")


def note_address(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Record the container's address of a RUNNING attempt whose row has none."""
    if address := runtime.address(session_id, attempt):
        running = Session.objects.filter(pk=session_id, attempt=attempt, status=Status.RUNNING)
        with transaction.atomic():
            running.update(address=address)
            notify.routes_changed(session_id)


def clear_away(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Remove a container that no live session owns, after storing its last output in the session's row, if any."""
    without_log = Session.objects.filter(pk=session_id, attempt=attempt, ended_at__isnull=False, log_tail="")
    if without_log.exists():
        without_log.update(log_tail=parking.last_output(runtime, session_id, attempt))
    if not Session.objects.filter(pk=session_id, status=Status.RUNNING).exists():  # in another attempt, that is
        withdraw(session_id)
    runtime.remove(session_id, attempt)


def _claim(session_id: str, attempt: int) -> Session | None:
    """Return the session in PREPARING, moved there if it was SCHEDULED; None when the attempt is over or taken back."""
    session = _read(session_id, attempt, Status.SCHEDULED, Status.PREPARING)
    if session is not None and session.status == Status.SCHEDULED:
        try:
            fields = {"pulled_bytes": None, "pull_bytes": None}  # of an earlier attempt
            session.move_to(Status.PREPARING, Reason.CLAIMED, "Preparing the container.", fields=fields)
        except StaleSessionError:
            return None
    return session


def _run(runtime: Runtime, session: Session) -> None:
    """Start the container and move the session to RUNNING; remove the container if the session ended meanwhile."""
    if not _is(session, Status.PREPARING):
        return
    image = parking.image_of(runtime, session)
    container_id = runtime.create(spec_of(session, folder_mounts.prepare(session, runtime), image))
    cluster_networks.join(runtime, session)
    try:
        runtime.start(session.pk, session.attempt, lambda address: _take_over(session, address))
    except HasEndedError:  # the worker that started it died before it could say so; the reconciler notes its exit
        logger.info("session %s: its container has ended meanwhile", session.pk)
    fields: dict[str, object] = {"container_id": container_id, "address": runtime.address(session.pk, session.attempt)}
    try:
        session.move_to(Status.RUNNING, Reason.STARTED, "Running.", fields=fields)
    except StaleSessionError:
        _clear_if_ended(runtime, session)
    else:
        if session.cluster_id:
            cluster_networks.started.set()
        host_health.note_start(session.host_id, has_gpu=bool(session.fgpu))


def _take_over(session: Session, address: str) -> None:
    """Clear the address from other sessions of the host: the engine has assigned it to this session's container.

    Their containers are gone although that is not recorded yet, as after a restart of the engine. Routes to their
    apps would lead to this session.
    """
    before = Session.objects.filter(host=session.host_id, address=address, status__in=HOSTED).exclude(pk=session.pk)
    for session_id in list(before.values_list("pk", flat=True)):
        logger.warning("session %s: its address %s is another's now", session_id, address)
        Session.objects.filter(pk=session_id, address=address).update(address=None)
        withdraw(session_id)


def _note_refusal(runtime: Runtime, session: Session, reason: Reason, failure: ContainerRuntimeError) -> None:
    """Return the session to the queue where its host was at fault, else end it; then remove what there is of it."""
    if not failure.is_host_fault and parking.put_back(session, failure):
        _clear(runtime, session)
        return
    if not failure.is_host_fault:
        _finish(runtime, session, Status.ERROR, reason, str(failure))
        return
    try:
        host_faults.note_failed_start(session, reason, str(failure))
    except StaleSessionError:
        logger.debug("session %s: moved on by another", session.pk)
    _clear(runtime, session)


def _finish(
    runtime: Runtime,
    session: Session,
    target: Status,
    reason: Reason,
    detail: str,
    fields: dict[str, int | None] | None = None,
) -> None:
    """End the session and release its lease, then remove its container, unless another worker did it first."""
    _end(runtime, session, target, reason, detail, fields)
    _clear(runtime, session)


def _clear(runtime: Runtime, session: Session) -> None:
    """Remove the attempt's container as `_clear_if_ended`; a failure is left to the reconciler."""
    try:
        _clear_if_ended(runtime, session)
    except ContainerRuntimeError as failure:
        logger.warning("session %s: container left to the reconciler: %s", session.pk, failure)


def _end(
    runtime: Runtime,
    session: Session,
    target: Status,
    reason: Reason,
    detail: str,
    fields: dict[str, int | None] | None,
) -> None:
    """End the session and release its lease; does nothing where another worker did it first."""
    output = _last_output(runtime, session) if session.cluster_id else ""
    try:
        with transaction.atomic():
            if target == Status.ERROR and session.status == Status.RUNNING:
                cluster_restarts.fail(session, reason, detail, fields, output)
            else:
                session.move_to(target, reason, detail[:300], fields=fields)
            kick_scheduler()
    except StaleSessionError:
        logger.debug("session %s: moved on by another", session.pk)


def _conclude(runtime: Runtime, session: Session, fields: dict[str, int | None] | None = None) -> None:
    """End a session that was stopped, or return it to the queue; does nothing where another worker did it first."""
    output = _last_output(runtime, session) if session.reason in preemption.RETURNING else ""
    try:
        with transaction.atomic():
            preemption.conclude(session, fields, output)
            kick_scheduler()
    except StaleSessionError:
        logger.debug("session %s: moved on by another", session.pk)


def _last_output(runtime: Runtime, session: Session) -> str:
    """Return what is kept of an attempt that may return to the queue; "" where the engine cannot say."""
    try:
        return parking.last_output(runtime, session.pk, session.attempt)
    except ContainerRuntimeError as failure:
        logger.warning("session %s: its output is not kept: %s", session.pk, failure)
        return ""


def _clear_if_ended(runtime: Runtime, session: Session) -> None:
    """Remove the attempt's container unless the attempt is live, as when another worker has started it."""
    if not _is(session, *HOSTED):
        clear_away(runtime, session.pk, session.attempt)


def _is(session: Session, *statuses: Status) -> bool:
    """Return whether the attempt has one of these statuses by now."""
    return Session.objects.filter(pk=session.pk, attempt=session.attempt, status__in=statuses).exists()


def _read(session_id: str, attempt: int, *statuses: Status) -> Session | None:
    return _sessions().filter(pk=session_id, attempt=attempt, status__in=statuses).first()


def _sessions() -> QuerySet[Session]:
    policies = "owner__policy", "project__policy"
    sessions = Session.objects.select_related(*("image", "resource_group", "lease", "host", "cluster"), *policies)
    return sessions.defer("owner__password")  # out of the reach of hosts


def running_session(session_id: str) -> Session | None:
    """Return the session with what `spec_of` needs while it runs."""
    return _sessions().filter(pk=session_id, status=Status.RUNNING).first()


def _show_progress(session: Session, text: str) -> None:
    changes: dict[str, object] = {"detail": text[:300]}
    if isinstance(text, PullText):
        changes |= {"pulled_bytes": text.pulled_bytes, "pull_bytes": text.total_bytes}
    Session.objects.filter(pk=session.pk, attempt=session.attempt, status=Status.PREPARING).update(**changes)
    notify.sessions_changed([(session.pk, session.owner_id, session.project_id)])


def _note_pull(session: Session) -> None:
    """Note on the timeline that the image is here, and how large it was, unless the session has moved on meanwhile."""
    mine = Session.objects.filter(pk=session.pk, attempt=session.attempt, status=Status.PREPARING)
    with transaction.atomic():
        for size in mine.select_for_update(no_key=True).values_list("pull_bytes", flat=True):
            text = f" ({size_text(size)})" if size else ""
            notes.note(session, Reason.IMAGE_PULLED, f"{session.image.reference} is on the host now{text}.")


@contextmanager
def container_lock(session_id: str) -> Iterator[None]:
    """Hold the lock of the session's container, across threads and processes.

    An advisory lock of the database connection, outside any transaction: the death of the holder frees it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [CONTAINER_LOCK, session_id])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [CONTAINER_LOCK, session_id])
