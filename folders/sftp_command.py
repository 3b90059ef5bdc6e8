"""The command by which a user reaches their folders over SFTP."""

from urllib.parse import urlsplit

from django.conf import settings

from folders.names import SFTP_LOGIN


def sftp_command() -> str:
    """Return the sftp command line; "" where there is no SSH server."""
    if not settings.COMPUTE_SSH_ADDRESS:
        return ""
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or "localhost"
    port = settings.COMPUTE_SSH_ADDRESS.rpartition(":")[2]
    return f"sftp -P {port} {SFTP_LOGIN}@{host}"
