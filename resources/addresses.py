"""How addresses are written in settings, and where a host's gateway is reached."""

import re
from typing import Final

GATEWAY_SCHEME: Final = "http://"  # TLS between machines is the work of a tunnel: see docs/hosts.md
_ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def is_address(text: str) -> bool:
    """Return whether it is a host or an IP address with a port, such as 10.0.0.5:8010 or [::1]:8000."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match["port"]) < 2**16


def is_gateway_url(text: str) -> bool:
    """Return whether it is http:// and an address with a port, and nothing else."""
    return text.startswith(GATEWAY_SCHEME) and is_address(text.removeprefix(GATEWAY_SCHEME))
