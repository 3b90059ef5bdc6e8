"""IP networks, and what lies in them."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


def is_inside(address: str, subnets: Sequence[Network]) -> bool:
    """Return whether an IP address is in one of the subnets; False for what is none."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in subnet for subnet in subnets)
