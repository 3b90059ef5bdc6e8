"""Until the verbs of endpoints are here: what the host tells."""

from django.db import transaction

from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState


def report(endpoint: Endpoint, state: EndpointState, detail: str = "", output: str = "") -> bool:
    """Write what the host has found of the app; return False where that no longer matters: closed, or ended."""
    current = Endpoint.objects.unclosed().filter(pk=endpoint.pk, session__status=Status.RUNNING)
    with transaction.atomic():
        is_current = bool(current.update(state=state.value, detail=detail[:300], output=output))
        if is_current:
            notify.sessions_changed([(endpoint.session_id, endpoint.session.owner_id)])
    return is_current
