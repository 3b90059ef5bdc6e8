"""Which addresses may be reached: public ones, and networks that the operator allows. Pure, for any Python from 3.9."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, Union

IPAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]  # noqa: UP007  # Python 3.9 runs this
IPNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]  # noqa: UP007

NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # global addresses that stand for IPv4 addresses (RFC 6052)


def networks_of(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Return the networks of their texts, such as "10.0.0.0/8". Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def is_in(address: IPAddress, networks: Iterable[IPNetwork]) -> bool:
    """Return whether the address is in one of the networks."""
    real = _embedded(address)
    return any(real in network for network in networks)


def is_allowed(address: IPAddress, networks: Iterable[IPNetwork]) -> bool:
    """Return whether the address may be reached: a public one, or one of the operator's networks."""
    real = _embedded(address)
    is_local = isinstance(real, ipaddress.IPv6Address) and real.is_site_local
    is_public = real.is_global and not (real.is_multicast or real.is_reserved or is_local)
    return is_public or is_in(real, networks)


def _embedded(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that is reached through an IPv6 address, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address
