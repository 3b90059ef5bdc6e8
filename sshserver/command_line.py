"""What a user types to come in by SSH."""

from urllib.parse import urlsplit

from django.conf import settings

from sessions.lifecycle import Status
from sessions.models import Session


def command_line(session: Session) -> str:
    """Return the command for a running session; "" where there is none to enter, or no SSH."""
    if not settings.COMPUTE_SSH_ADDRESS or session.status != Status.RUNNING:
        return ""
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or "localhost"
    port = settings.COMPUTE_SSH_ADDRESS.rpartition(":")[2]
    return f"ssh -p {port} {session.pk}@{host}"
