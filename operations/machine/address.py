"""Addresses of the platform's servers: parsing of settings, free ports, URLs and health checks."""

import contextlib
import http.client
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from operations.machine.progress import SetupError

ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # recognised, not bound
TIMEOUT_SECONDS: Final = 3
INSTALLATION_HEADER: Final = "X-Installation"
HTTP_SETTING: Final = "COMPUTE_HTTP_ADDRESS"
SSH_SETTING: Final = "COMPUTE_SSH_ADDRESS"


@dataclass(frozen=True, slots=True)
class Address:
    """A host, without brackets, and a TCP port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """As it is written in a setting."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """What to open in a browser on this machine."""
        host = EVERYWHERE.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def is_free(self, setting: str = HTTP_SETTING) -> bool:
        """Return whether a server could listen here now. Raise SetupError if this is no address of the machine."""
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except PermissionError:
            raise SetupError(f"you may not listen on port {self.port}: choose one from 1024 up") from None
        except socket.gaierror as error:
            raise SetupError(f"{setting}: {self.host} is not an address here: {error.strerror}") from None
        except OSError:
            return False
        return True


def address_from(text: str, setting: str = HTTP_SETTING) -> Address:
    """Return the address in "host:port" or "[ipv6]:port"; raise SetupError, naming the setting, for anything else."""
    match = ADDRESS.fullmatch(text)
    if not match or not 0 < int(match["port"]) < 65536:
        raise SetupError(f"{setting} is {text!r}, which is not host:port, such as 127.0.0.1:8000")
    return Address(match["host"].strip("[]"), int(match["port"]))


def health(address: Address, allowed_hosts: Sequence[str]) -> int | None:
    """Return the HTTP status that /healthz gives at `address`, or None if no web server responds."""
    return health_of(address, allowed_hosts)[0]


def health_of(address: Address, allowed_hosts: Sequence[str]) -> tuple[int | None, str]:
    """Return the HTTP status of /healthz, and the installation that it names; (None, "") if no web server responds."""
    name = next((host.lstrip(".") for host in allowed_hosts if host != "*"), "localhost")
    host = EVERYWHERE.get(address.host, address.host)
    connection = http.client.HTTPConnection(host, address.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/healthz", headers={"Host": name})
            response = connection.getresponse()
            return response.status, response.headers.get(INSTALLATION_HEADER, "")
        except (OSError, http.client.HTTPException):
            return None, ""
