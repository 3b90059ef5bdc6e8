"""Where the platform's SSH server is reached."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from accounts.models import SshHostKey

STANDARD_PORT: Final = "22"


@dataclass(frozen=True, slots=True)
class SshServerAddress:
    """Where users reach the SSH server, and its line for ~/.ssh/known_hosts; "" until it has started once."""

    host: str
    port: int
    known_hosts: str


def ssh_server() -> SshServerAddress | None:
    """Return the SSH server; None where there is none."""
    if (address := ssh_host_and_port()) is None:
        return None
    host_key = SshHostKey.objects.first()
    return SshServerAddress(address[0], int(address[1]), known_hosts_line(host_key.text) if host_key else "")


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
