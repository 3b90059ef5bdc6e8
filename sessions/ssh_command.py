"""The command by which a user enters a session over SSH."""

from urllib.parse import urlsplit

from django.conf import settings

from sessions.lifecycle import Status
from sessions.models import Session


def ssh_command(session: Session) -> str:
    """Return the ssh command line for a running session; "" for any other, and where SSH is off."""
    if not settings.COMPUTE_SSH_ADDRESS or session.status != Status.RUNNING:
        return ""
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or "localhost"
    port = settings.COMPUTE_SSH_ADDRESS.rpartition(":")[2]
    return f"ssh -p {port} {session.pk}@{host}"
