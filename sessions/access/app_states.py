"""The state of an app as its host reports it, and what follows from a change of its endpoint."""

from django.db import transaction
from django.utils.crypto import salted_hmac

from hostaccess import keys
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Endpoint, EndpointState


def report(endpoint: Endpoint, state: EndpointState, detail: str = "", output: str = "", obstacle: str = "") -> bool:
    """Write the state that the host has found; return False if the endpoint is closed or its session not running.

    `output` holds the app's last lines, for its owner to read; `obstacle` is an AppObstacle, or "".
    """
    current = Endpoint.objects.unclosed().filter(pk=endpoint.pk, session__status=Status.RUNNING)
    with transaction.atomic():
        is_current = bool(current.update(state=state.value, detail=detail[:300], output=output, obstacle=obstacle))
        if is_current:
            announce(endpoint)
    return is_current


def token_of(host_name: str, session_id: str, port: int) -> str:
    """Return the token of the session's app on this port, known before anybody opens it: 64 hexadecimal digits.

    It follows from the key of the session's host, which starts apps before they are opened. At most one query.
    """
    key, about = keys.key_of(host_name), f"{session_id}:{port}"
    return salted_hmac("sessions.access.app_states.token_of", about, secret=key, algorithm="sha256").hexdigest()


def announce(endpoint: Endpoint) -> None:
    """Notify the proxies and the browsers, after the commit, that the endpoint has changed."""
    host = endpoint.session.host
    notify.routes_changed(endpoint.session_id, host.name if host else "")
    notify.sessions_changed([(endpoint.session_id, endpoint.session.owner_id, endpoint.session.project_id)])
