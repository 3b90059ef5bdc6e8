"""Which task of which array a session runs, and those before and after it."""

from dataclasses import dataclass

from accounts.models import User
from arrays.models import Array, ArrayTask
from sessions.models import Session


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """A task of an array; its neighbours are those that have a session."""

    array: Array
    index: int
    previous: ArrayTask | None
    next: ArrayTask | None


def array_place_of(session: Session, user: User) -> ArrayPlace | None:
    """Return where the session stands, also where its task has another by now; None where the user sees no array.

    The session's variables say so, which the platform sets: three queries, none for other sessions.
    """
    if not session.is_task:
        return None
    array = Array.objects.visible_to(user).filter(pk=session.environment.get("GP_ARRAY_ID")).first()
    if array is None:
        return None
    index = int(session.environment["GP_ARRAY_TASK_ID"])
    tasks = array.tasks.filter(session__isnull=False).order_by("index")
    before, after = tasks.filter(index__lt=index).last(), tasks.filter(index__gt=index).first()
    return ArrayPlace(array, index, before, after)
