"""What the pages of a session fetch."""

from django.shortcuts import get_object_or_404

from accounts.requests import UserRequest
from sessions.models import Session, SessionQuerySet


def visible_session(request: UserRequest, session_id: str) -> Session:
    """Return the session with what its pages show; raise Http404 unless it is visible to the user."""
    return _found(Session.objects.visible_to(request.user), session_id)


def operable_session(request: UserRequest, session_id: str) -> Session:
    """Return the session with what its pages show; raise Http404 unless the user may enter and change it."""
    return _found(Session.objects.operable_by(request.user), session_id)


def _found(sessions: SessionQuerySet, session_id: str) -> Session:
    related = sessions.with_members().select_related(
        *("owner__policy", "project__policy", "image", "resource_group", "host", "lease", "idle_notice__rule"),
    )
    return get_object_or_404(related.prefetch_related("lease__shares__gpu"), pk=session_id)
