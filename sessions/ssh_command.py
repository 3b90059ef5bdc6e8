"""The command by which a user enters a session over SSH."""

from accounts.ssh_address import ssh_host_and_port
from sessions.lifecycle import Status
from sessions.models import Session


def ssh_command(session: Session) -> str:
    """Return the ssh command line for a running session; "" for any other, and where SSH is off."""
    address = ssh_host_and_port()
    if address is None or session.status != Status.RUNNING:
        return ""
    host, port = address
    return f"ssh -p {port} {session.pk}@{host}"
