"""Where the platform's SSH server is reached."""

from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

STANDARD_PORT: Final = "22"


def ssh_host_and_port() -> tuple[str, str] | None:
    """Return (host name, port) as users write them; None where there is no SSH server."""
    if not settings.COMPUTE_SSH_ADDRESS:
        return None
    host = urlsplit(settings.COMPUTE_PUBLIC_URL).hostname or "localhost"
    return host, settings.COMPUTE_SSH_ADDRESS.rpartition(":")[2]


def known_hosts_line(public_key: str) -> str:
    """Return the line for ~/.ssh/known_hosts by which a client trusts this key; "" where there is no SSH server."""
    if (address := ssh_host_and_port()) is None:
        return ""
    host, port = address
    name = host if port == STANDARD_PORT else f"[{host}]:{port}"
    return f"{name} {public_key}"
