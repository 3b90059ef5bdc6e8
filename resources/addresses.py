"""Validation of addresses and gateway URLs in settings. Pure."""

import re
from typing import Final

GATEWAY_SCHEME: Final = "http://"  # a tunnel encrypts between machines: see docs/hosts.md
_ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def is_address(text: str) -> bool:
    """Return whether `text` is host:port, such as 10.0.0.5:8010 or [::1]:8000."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match["port"]) < 2**16


def is_gateway_url(text: str) -> bool:
    """Return whether `text` is http://host:port without a path."""
    return text.startswith(GATEWAY_SCHEME) and is_address(text.removeprefix(GATEWAY_SCHEME))
