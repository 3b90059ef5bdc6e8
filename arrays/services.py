"""Operations on arrays for pages and API: submit, cancel, retry, hold, release, change. One transaction each.

Sessions are made and ended by `reconciliation`, which each of them asks for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Min, QuerySet, Sum
from django.dispatch import Signal

from accounts import audit
from accounts.models import Project, User
from accounts.policies import bounds_of
from arrays.models import COUNTS, ENDED, IN_SESSION, OPEN, Array, ArrayState, ArrayTask, TaskState
from arrays.spaces import MAX_INDEX, TaskSpace
from resources import clock
from resources.kick import kick_arrays, kick_scheduler
from sessions.errors import GENERAL, RejectedError
from sessions.launching import services as sessions
from sessions.launching import validation
from sessions.launching.names import random_name
from sessions.launching.requests import LaunchRequest, TaskPart
from sessions.limits import held, policy_checks

MAX_RETRIES: Final = 10
WINDOW: Final = 50  # sessions of an array that wait at most, so that queue and scheduler see no more of it
OPEN_ARRAYS: Final = 10  # times the most tasks of an array may wait in all arrays of an owner
DAILY_ARRAYS: Final = 20  # times the most tasks of an array may an owner submit within a day
MAX_WORDS: Final = 300
MAX_NAMED: Final = 10  # indices, in a refusal

array_ended, array_held = Signal(), Signal()  # with `array`, in the transaction; held by the platform


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayRequest:
    """A request for an array: the launch of each task, as it was validated and as it was written, and the tasks."""

    launch: LaunchRequest
    body: Mapping[str, Any]  # fields of the API's launch request, in plain data
    space: TaskSpace
    max_parallel: int | None = None
    retries: int = 0


def submit(owner: User, request: ArrayRequest) -> Array:
    """Store the array with its tasks; the first sessions follow. Raises RejectedError with a message per field."""
    tasks, array = request.space.tasks, _array(owner, request)
    if errors := _errors(owner, request, array):
        raise RejectedError(errors)
    try:
        with transaction.atomic():
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # so that two requests at once are counted
            _check_waiting(owner, len(tasks))
            _check_submitted(owner, len(tasks))
            array.save(force_insert=True)
            ArrayTask.objects.bulk_create(
                ArrayTask(array=array, index=index, parameters=parameters) for index, parameters in tasks.items()
            )
            kick_arrays()
    except IntegrityError:
        raise RejectedError({"name": _taken(array.name)}) from None
    return array


def problems(owner: User, request: ArrayRequest) -> dict[str, str]:
    """Return {field: message} for what can never be granted, as `submit` refuses it."""
    return _errors(owner, request, _array(owner, request))


def at_once(owner: User, request: ArrayRequest) -> LaunchRequest | None:
    """Return the request for the sessions that may wait at once, of which an estimate can be asked; None for none."""
    most = request.max_parallel or request.space.max_parallel or WINDOW
    count = min(len(request.space.tasks), most, room_of(owner, request.launch.project))
    return replace(request.launch, count=count, name="") if count > 0 else None


def room_of(owner: User, project: Project | None) -> int:
    """Return how many more sessions of arrays may wait: half of what policies allow is left to other launches."""
    most = bounds_of(owner, project).max_per_launch
    room = WINDOW if most is None else min(WINDOW, most)
    for _whose, holder, limits in policy_checks.holders(owner, project):
        if limits.pending is not None:
            room = min(room, max(limits.pending // 2, 1) - held.pending_of(holder))
    return room


@audit.recorded_for_others("cancel")
def cancel(array: Array, *, actor: User, indices: Collection[int] | None = None) -> None:
    """Cancel tasks, by default all: those that wait at once, the others when their sessions have ended.

    Raises RejectedError for indices (`tasks`) that it has not.
    """
    with transaction.atomic():
        lock(array)
        _check_indices(array, indices)
        if indices is None and not array.has_ended:
            give_up(array, cancelled_by(actor))
        else:
            cancel_tasks(array, cancelled_by(actor), indices)
        settle(array)
        kick_arrays()


@audit.recorded_for_others("retry")
def retry(array: Array, *, actor: User, indices: Collection[int] | None = None) -> None:
    """Have tasks wait again: these, if they have failed or were cancelled; by default all that have failed.

    Raises RejectedError.
    """
    states = (TaskState.FAILED,) if indices is None else (TaskState.FAILED, TaskState.CANCELLED)
    try:
        with transaction.atomic():
            lock(array)
            if array.tasks.count() < array.size:
                raise RejectedError({GENERAL: "This array ended long ago, and its tasks are being removed."})
            _check_indices(array, indices)
            again = _of(array, indices).filter(state__in=states)
            _check_waiting(array.owner, again.count())
            blank: dict[str, Any] = {
                **{"state": TaskState.WAITING, "not_before": None, "is_cancelled": False},
                **{"exit_code": None, "metrics": {}, "reason": "", "started_at": None, "ended_at": None},
            }
            if again.update(**blank) and array.has_ended:
                array.state, array.ended_at, array.reason = ArrayState.ACTIVE, None, ""
            settle(array)
            kick_arrays()
    except IntegrityError:
        raise RejectedError({GENERAL: _taken(array.name)}) from None


@audit.recorded_for_others("hold")
def hold(array: Array, *, actor: User) -> None:
    """Start no more of its tasks; those that have a session go on. Does nothing once the array has ended."""
    _set(array, {"state": ArrayState.HELD, "reason": f"Held by {actor}."}, ArrayState.ACTIVE)


@audit.recorded_for_others("release")
def release(array: Array, *, actor: User) -> None:
    """Start its tasks again as there is room. Does nothing unless it is held."""
    del actor  # for the audit log
    _set(array, {"state": ArrayState.ACTIVE, "reason": "", "refused_until": None}, ArrayState.HELD)


@audit.recorded_for_others("change")
def change(array: Array, changes: Mapping[str, Any], *, actor: User) -> None:
    """Change `name` and `max_parallel` (None: no limit); what runs goes on. Raises RejectedError."""
    del actor
    if array.has_ended:
        raise RejectedError({GENERAL: "This array has ended."})
    if error := name_error(changes.get("name", array.name), array.last_index):
        raise RejectedError({"name": error})
    try:
        _set(array, changes)
    except IntegrityError:
        raise RejectedError({"name": _taken(changes["name"])}) from None


def cancelled_by(actor: User) -> str:
    """Return the reason of what somebody has cancelled."""
    return f"Cancelled by {actor}."


def lock(array: Array) -> None:
    """Read the array anew and lock it, before its tasks are changed and counted."""
    rows = Array.objects.select_for_update(no_key=True, of=("self",)).select_related("owner", "project")
    array.refresh_from_db(from_queryset=rows)


def cancel_tasks(array: Array, why: str, indices: Collection[int] | None = None) -> None:
    """Cancel the tasks of an array that is locked; sessions of theirs are ended by `reconciliation`."""
    tasks, why = _of(array, indices), why[:MAX_WORDS]
    tasks.filter(state=TaskState.WAITING).update(state=TaskState.CANCELLED, reason=why, ended_at=clock.now())
    tasks.filter(state__in=IN_SESSION).update(is_cancelled=True, reason=why)


def give_up(array: Array, why: str) -> None:
    """Cancel all tasks of an array that is locked; that it was held, or its tasks refused, is not why it ends."""
    array.state, array.reason, array.refused_until = ArrayState.ACTIVE, why[:MAX_WORDS], None
    cancel_tasks(array, why)


def settle(array: Array) -> None:
    """Count the tasks of an array that is locked, end it with its last one, and store it.

    What waits for its start or end is looked at by the scheduler then.
    """
    counts, before = array.counted(), (array.started_at, array.has_ended)
    for name, count in counts.items():
        setattr(array, name, count)
    if array.started_at is None:
        array.started_at = array.tasks.aggregate(at=Min("started_at"))["at"]
    if not array.has_ended and sum(counts[state.lower()] for state in ENDED) == array.size:
        if array.state == ArrayState.HELD or array.refused_until is not None:
            array.reason, array.refused_until = "", None  # it says why no task was started
        array.state = (
            ArrayState.FAILED if array.failed else ArrayState.CANCELLED if array.cancelled else ArrayState.SUCCEEDED
        )
        array.ended_at = clock.now()
        array_ended.send(Array, array=array)
    array.save(update_fields=[*COUNTS, "state", "reason", "refused_until", "started_at", "ended_at"])
    if before != (array.started_at, array.has_ended):
        kick_scheduler()


def task_part(array: Array, task: ArrayTask) -> TaskPart:
    """Return what the session of a task has of its own: its name, and the variables that say which one it is."""
    numbers = {"ID": task.index, "COUNT": array.size, "MIN": array.first_index, "MAX": array.last_index}
    variables = {f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in numbers.items()}
    variables |= {"SLURM_ARRAY_JOB_ID": array.pk, "GP_ARRAY_ID": array.pk, "GP_ARRAY_TASK_ID": str(task.index)}
    return TaskPart(f"{array.name}-{task.index}", {**task.texts, **variables})


def name_error(name: str, last_index: int = MAX_INDEX) -> str | None:
    """Return what is wrong with the name of an array, whose tasks are called after it; or None."""
    most = validation.MAX_NAME_LENGTH - len(f"-{last_index}")
    if len(name) > most:
        return f"The name of this array has at most {most} characters: its tasks are called after it."
    return validation.name_error(name)


def _errors(owner: User, request: ArrayRequest, array: Array) -> dict[str, str]:
    """Return {field: message} for what an array cannot be, else for what the session of its largest task cannot be."""
    launch, tasks, errors = request.launch, request.space.tasks, {}
    if not launch.command:
        errors["command"] = "Say what each task runs."
    if launch.cluster is not None:
        errors["cluster"] = "A task of an array is one container."
    if launch.count != 1:
        errors["count"] = "An array starts each of its tasks once: leave count out."
    if launch.name and (error := name_error(launch.name, max(request.space.tasks))):
        errors["name"] = error
    if error := policy_checks.array_error(owner, launch.project, len(tasks)):
        errors["tasks"] = error
    if twice := launch.environment.keys() & {name for each in request.space.tasks.values() for name in each}:
        errors["environment"] = f"{min(twice)} is a parameter of the tasks as well."
    if errors:
        return errors
    largest = max(tasks, key=lambda index: len(str(tasks[index])))
    part = task_part(array, ArrayTask(index=largest, parameters=tasks[largest]))
    return sessions.problems(owner, _alone(launch, part))


def _array(owner: User, request: ArrayRequest) -> Array:
    tasks = request.space.tasks
    return Array(
        owner=owner,
        project=request.launch.project,
        name=request.launch.name or random_name(),
        request=dict(request.body),
        space=request.space.stored,
        max_parallel=request.max_parallel or request.space.max_parallel,
        retries=request.retries,
        size=len(tasks),
        first_index=min(tasks),
        last_index=max(tasks),
        waiting=len(tasks),
        created_at=clock.now(),
    )


def _taken(name: str) -> str:
    return f"You have an array called {name} that has not ended; choose another name."


def _alone(launch: LaunchRequest, part: TaskPart) -> LaunchRequest:
    """Return the request for the session of one task."""
    return replace(launch, name=part.name, environment={**launch.environment, **part.environment})


def _check_waiting(owner: User, count: int) -> None:
    """Raise RejectedError where so many more waiting tasks are too many for the arrays of one owner."""
    most = OPEN_ARRAYS * settings.COMPUTE_MAX_ARRAY_TASKS
    waiting = Array.objects.live().filter(owner=owner).aggregate(tasks=Sum("waiting"))["tasks"] or 0
    if waiting + count > most:
        raise RejectedError({GENERAL: f"At most {most} tasks of yours may wait, and {waiting} do already."})


def _check_submitted(owner: User, count: int) -> None:
    """Raise RejectedError where so many more tasks are too many for a day: they are stored long after their end."""
    most = DAILY_ARRAYS * settings.COMPUTE_MAX_ARRAY_TASKS
    today = Array.objects.filter(owner=owner, created_at__gt=clock.now() - timedelta(days=1))
    submitted = today.aggregate(tasks=Sum("size"))["tasks"] or 0
    if submitted + count > most:
        refusal = f"At most {most} tasks of yours can be submitted within 24 hours, and {submitted} were already."
        raise RejectedError({"tasks": refusal})


def _check_indices(array: Array, indices: Collection[int] | None) -> None:
    """Raise RejectedError with the indices that the array does not have."""
    if indices is None:
        return
    missing = sorted(set(indices) - set(_of(array, indices).values_list("index", flat=True)))
    if missing:
        named = ", ".join(map(str, missing[:MAX_NAMED])) + (", ..." if len(missing) > MAX_NAMED else "")
        raise RejectedError({"tasks": f"This array has no task {named}."})


def _of(array: Array, indices: Collection[int] | None) -> QuerySet[ArrayTask]:
    return array.tasks.all() if indices is None else array.tasks.filter(index__in=indices)


def _set(array: Array, changes: Mapping[str, Any], *states: ArrayState) -> None:
    """Write the changes of an array that has not ended, or is in one of these states; then have it reconciled."""
    with transaction.atomic():
        Array.objects.live().filter(pk=array.pk, state__in=states or OPEN).update(**changes)
        kick_arrays()
    array.refresh_from_db()
