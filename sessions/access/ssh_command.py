"""How a user enters a session over SSH: the command, and a section for ~/.ssh/config."""

from accounts.credentials.ssh_address import ssh_host_and_port
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
    return ssh_host_and_port() if session.status == Status.RUNNING else None
