"""How a user enters a session over SSH: the command, and a section for ~/.ssh/config."""

from urllib.parse import urlsplit

from django.conf import settings

from sessions.lifecycle import Status
from sessions.models import Session


def ssh_command(session: Session) -> str:
    """Return the ssh command line for a running session; "" for any other, and where SSH is off."""
    if not (place := _place(session)):
        return ""
    host, port = place
    return f"ssh -p {port} {session.pk}@{host}"


def ssh_config(session: Session) -> str:
    """Return the section for ~/.ssh/config by which `ssh NAME`, scp and editors find a running session; else ""."""
    if not (place := _place(session)):
        return ""
    host, port = place
    return f"Host {session.full_name}\n    HostName {host}\n    Port {port}\n    User {session.pk}\n"


def _place(session: Session) -> tuple[str, str] | None:
    """Return host and port of the SSH server; None where the session cannot be entered."""
    if not settings.COMPUTE_SSH_ADDRESS or session.status != Status.RUNNING:
        return None
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or "localhost"
    return host, settings.COMPUTE_SSH_ADDRESS.rpartition(":")[2]
