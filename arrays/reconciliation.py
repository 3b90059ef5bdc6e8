"""Gives arrays the sessions that they may have at present: every few seconds, and when a session of theirs ends.

Each array is reconciled in a transaction of its own, under the lock of its row, from what the rows say then. So it may
die anywhere, run twice, or be asked for by many at once; a session is made in the transaction that records it.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from rest_framework.exceptions import ValidationError

from arrays import metrics, services
from arrays.models import IN_SESSION, Array, ArrayState, ArrayTask, TaskState
from arrays.services import WINDOW
from resources import clock
from sessions.errors import RejectedError
from sessions.launching import services as sessions
from sessions.launching.requests import LaunchRequest
from sessions.launching.serializers import LaunchRequestSerializer
from sessions.lifecycle import FINAL, LIVE, Reason, Status
from sessions.models import Session

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 1.0  # of one task, which must not delay scheduling; the next one goes on
ENDS_AT_ONCE: Final = 100  # in one transaction, which holds locks
NOTES_AT_ONCE: Final = 500  # the same, of sessions that have moved, each of which is read with its output
AGAIN: Final = timedelta(seconds=10)  # after a refusal that may pass
BACKOFF: Final = timedelta(seconds=10)  # after a failed task; doubled by each further failure
BACKOFF_LIMIT: Final = timedelta(minutes=5)
LATE: Final = timedelta(minutes=1)  # after its end, in which the output of a session is stored
DISABLED: Final = "The account of its owner is disabled."
GONE: Final = "Its session is not there any more."
BY_HAND: Final = (Reason.USER_REQUEST, Reason.ADMIN_REQUEST)
AT_WORK: Final = (Status.RUNNING, Status.TERMINATING)

_HAS_MOVED: Final = (  # tasks that their sessions are ahead of
    Q(session=None)
    | Q(session__status__in=FINAL)
    | Q(state=TaskState.PENDING, session__status__in=AT_WORK)
    | Q(state=TaskState.RUNNING, session__status__in=LIVE - frozenset(AT_WORK))
)
_TO_END: Final = Q(is_cancelled=True, session__status__in=LIVE - {Status.TERMINATING})


def advance_all() -> None:
    """Reconcile the arrays that are not as wanted, for a second at most; what another process does is left to it."""
    until = monotonic() + ROUND_SECONDS
    for pk in due():
        try:
            while monotonic() < until and reconcile(pk):
                pass
        except Exception:  # of one, which must not keep the others waiting
            logger.exception("array %s: not reconciled, will try again", pk)
    note_late_metrics()


def note_late_metrics() -> None:
    """Take over the metrics of tasks whose output came after their end: hosts store it as they clear away."""
    late = ArrayTask.objects.filter(
        state__in=(TaskState.SUCCEEDED, TaskState.FAILED),
        metrics={},
        session__ended_at__gte=clock.now() - LATE,
        session__log_tail__contains=metrics.MARK,
    )
    for pk, session, output in late.values_list("pk", "session", "session__log_tail")[:NOTES_AT_ONCE]:
        ArrayTask.objects.filter(pk=pk, session=session, metrics={}).update(metrics=metrics.read(output))


def due() -> list[str]:
    """Return the ids of the arrays that may not be as wanted, in any order, so that none is always last; one query."""
    own = ArrayTask.objects.filter(array=OuterRef("pk"), state__in=IN_SESSION)
    has_room = Q(max_parallel=None) | Q(max_parallel__gt=F("pending") + F("running"))
    is_patient = Q(refused_until=None) | Q(refused_until__lte=clock.now())
    starts = has_room & is_patient & Q(state=ArrayState.ACTIVE, waiting__gt=0, pending__lt=WINDOW)
    found = Array.objects.live().filter(
        starts | Exists(own.filter(_HAS_MOVED)) | Exists(own.filter(_TO_END)) | Q(owner__is_active=False)
    )
    return list(found.order_by("?").values_list("pk", flat=True))


def reconcile(pk: str) -> bool:
    """Take the next step with this array, unless another process does so; return whether more is left to do at once."""
    rows = Array.objects.live().select_for_update(no_key=True, of=("self",), skip_locked=True)
    with transaction.atomic():
        array = rows.select_related("owner__policy", "project__policy").filter(pk=pk).first()
        if array is None:
            return False
        if not array.owner.is_active:
            services.give_up(array, DISABLED)
        live = array.tasks.filter(state__in=IN_SESSION)
        is_more_to_note = _take_note(array, live.filter(_HAS_MOVED).select_related("session"))
        is_more_to_end = _end_cancelled(live.filter(_TO_END).select_related("session__host"))
        services.settle(array)
        if not array.has_ended and _start_tasks(array):
            services.settle(array)
    return is_more_to_note or is_more_to_end


def _take_note(array: Array, moved: QuerySet[ArrayTask]) -> bool:
    """Take over what the sessions of these tasks have come to; return whether more are left than one step notes."""
    found = list(moved[: NOTES_AT_ONCE + 1])
    tasks = found[:NOTES_AT_ONCE]
    for task in tasks:
        _follow(array, task)
    fields = ("state", "exit_code", "reason", "started_at", "ended_at", "not_before", "is_cancelled", "metrics")
    ArrayTask.objects.bulk_update(tasks, fields)
    return len(found) > len(tasks)


def _follow(array: Array, task: ArrayTask) -> None:
    session = task.session
    if session is not None and not session.is_final:
        task.state = TaskState.RUNNING if session.status in AT_WORK else TaskState.PENDING
        task.started_at = session.started_at
        return
    task.ended_at = clock.now() if session is None else session.ended_at
    task.started_at = None if session is None else session.started_at
    task.exit_code = None if session is None else session.exit_code
    words = task.reason if task.is_cancelled else GONE if session is None else session.detail
    task.reason, was_cancelled, task.is_cancelled = words, task.is_cancelled, False
    task.metrics = {} if session is None else metrics.read(session.log_tail)
    if session is not None and session.has_succeeded:
        task.state, task.reason = TaskState.SUCCEEDED, ""
    elif was_cancelled or (session is not None and session.reason in BY_HAND):
        task.state = TaskState.CANCELLED
    elif session is not None and session.reason == Reason.DEPENDENCY_FAILED:
        task.state = TaskState.CANCELLED
        services.give_up(array, session.detail)
    elif task.attempts <= array.retries:
        task.state, task.ended_at = TaskState.WAITING, None
        task.not_before = clock.now() + min(BACKOFF * 2 ** (task.attempts - 1), BACKOFF_LIMIT)
    else:
        task.state = TaskState.FAILED


def _end_cancelled(tasks: QuerySet[ArrayTask]) -> bool:
    """End sessions of cancelled tasks; return whether more are left than one step ends."""
    found = list(tasks[: ENDS_AT_ONCE + 1])
    for task in found[:ENDS_AT_ONCE]:
        if task.session is not None:
            sessions.end(task.session, Reason.USER_REQUEST, task.reason)
    return len(found) > ENDS_AT_ONCE


def _start_tasks(array: Array) -> bool:
    """Launch sessions for as many waiting tasks as there is room for; return whether the tasks have changed."""
    now = clock.now()
    if array.state != ArrayState.ACTIVE or not array.waiting or (array.refused_until and array.refused_until > now):
        return False
    is_ready = Q(not_before=None) | Q(not_before__lte=now)
    waiting = array.tasks.filter(is_ready, state=TaskState.WAITING).order_by("index")
    if not (tasks := list(waiting[: max(0, _room(array))])):
        return False
    try:
        request = launch_request(array, tasks)
        try:
            with transaction.atomic():
                made = sessions.submit(array.owner, request)
        except RejectedError as error:
            if sessions.problems(array.owner, request):  # for good, until somebody changes something
                raise
            array.refused_until, array.reason = now + AGAIN, _words(error)
            return True
    except (RejectedError, ValidationError) as error:
        array.state, array.reason = ArrayState.HELD, _words(error)
        services.array_held.send(Array, array=array)
        return True
    array.reason, array.refused_until = "", None
    _record(tasks, made)
    return True


def launch_request(array: Array, tasks: Sequence[ArrayTask]) -> LaunchRequest:
    """Return the request for the sessions of these tasks, from what the array's says now.

    Raises ValidationError for what it names and is not there any more.
    """
    body = LaunchRequestSerializer(data=array.request, context={"request": SimpleNamespace(user=array.owner)})
    body.is_valid(raise_exception=True)
    parts = [services.task_part(array, task) for task in tasks]
    return replace(body.launch_request(), project=array.project, tasks=parts, count=len(parts))


def _room(array: Array) -> int:
    """Return how many more sessions of the array may wait."""
    room = min(services.room_of(array.owner, array.project), WINDOW - array.pending)
    return room if array.max_parallel is None else min(room, array.max_parallel - array.pending - array.running)


def _record(tasks: Sequence[ArrayTask], made: Sequence[Session]) -> None:
    for task, session in zip(tasks, made, strict=True):
        task.session, task.state, task.not_before = session, TaskState.PENDING, None
        task.attempts += 1
        task.reason, task.exit_code, task.started_at, task.ended_at = "", None, None, None
    fields = ("session", "state", "not_before", "attempts", "reason", "exit_code", "started_at", "ended_at")
    ArrayTask.objects.bulk_update(tasks, fields)


def _words(error: RejectedError | ValidationError) -> str:
    """Return what a refusal says, without its fields."""
    found = error.errors if isinstance(error, RejectedError) else error.detail
    values = found.values() if isinstance(found, dict) else found
    texts = [" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in values]
    return " ".join(texts)[: services.MAX_WORDS]
