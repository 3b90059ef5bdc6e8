"""What the pages of a session fetch."""

from django.shortcuts import get_object_or_404

from accounts.requests import UserRequest
from sessions.models import Session


def visible_session(request: UserRequest, session_id: str) -> Session:
    """Return the session with what its pages show; raise Http404 unless it is visible to the user."""
    visible = Session.objects.visible_to(request.user)
    sessions = visible.select_related("owner__policy", "image", "resource_group", "host", "lease", "idle_notice__rule")
    return get_object_or_404(sessions.prefetch_related("lease__shares__gpu"), pk=session_id)
