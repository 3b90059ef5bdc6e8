"""The command by which a user reaches their folders over SFTP."""

from accounts.credentials.ssh_address import ssh_host_and_port
from folders.names import SFTP_LOGIN


def sftp_command() -> str:
    """Return the sftp command line; "" where there is no SSH server."""
    if (address := ssh_host_and_port()) is None:
        return ""
    host, port = address
    return f"sftp -P {port} {SFTP_LOGIN}@{host}"
