"""What the pages of a session fetch."""

from dataclasses import dataclass

from django.shortcuts import get_object_or_404

from accounts.models import User
from accounts.requests import UserRequest
from arrays.models import Array, ArrayTask
from sessions.models import Session, SessionQuerySet


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """A task of an array; its neighbours are those that have a session."""

    array: Array
    index: int
    previous: ArrayTask | None
    next: ArrayTask | None


def visible_session(request: UserRequest, session_id: str) -> Session:
    """Return the session with what its pages show; raise Http404 unless it is visible to the user."""
    return _found(Session.objects.visible_to(request.user), session_id)


def operable_session(request: UserRequest, session_id: str) -> Session:
    """Return the session with what its pages show; raise Http404 unless the user may enter and change it."""
    return _found(Session.objects.operable_by(request.user), session_id)


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


def _found(sessions: SessionQuerySet, session_id: str) -> Session:
    related = sessions.with_members().select_related(
        "requested_end",
        "start_estimate",
        *("owner__policy", "project__policy", "image", "resource_group", "host", "lease", "idle_notice__rule"),
    )
    return get_object_or_404(related.prefetch_related("lease__shares__gpu"), pk=session_id)
