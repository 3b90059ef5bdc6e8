"""Which addresses the platform sends webhooks to, so that nobody reaches its own network through it. No Django."""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # global addresses that stand for IPv4 addresses (RFC 6052)
MAX_URL_LENGTH: Final = 500


class InvalidUrlError(ValueError):
    """A webhook cannot have this URL; the message says why."""


def networks_of(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Return the networks of their texts, such as "10.0.0.0/8". Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def check_url(url: str, networks: Iterable[IPNetwork]) -> None:
    """Raise InvalidUrlError unless a webhook may have the URL; what its name resolves to is checked when it is sent."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise InvalidUrlError("This is not a URL.") from error
    networks = tuple(networks)
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise InvalidUrlError("Write a URL that begins with https://.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidUrlError("Write a URL of ASCII characters without spaces; encode others.")
    if parts.scheme == "http" and not networks:
        raise InvalidUrlError("Write a URL that begins with https://.")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrlError("The URL may have no user name or password; check the signature instead.")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_allowed(address, networks, is_encrypted=parts.scheme == "https"):
        raise InvalidUrlError("The platform sends nothing to this address.")


def is_allowed(address: IPAddress, networks: Iterable[IPNetwork], *, is_encrypted: bool) -> bool:
    """Return whether a message may be sent to the address: a public one over TLS, or one of the operator's networks."""
    real = _embedded(address)
    if any(real in network for network in networks):
        return True
    is_local = isinstance(real, ipaddress.IPv6Address) and real.is_site_local
    return is_encrypted and real.is_global and not (real.is_multicast or real.is_reserved or is_local)


def _embedded(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that is reached through an IPv6 address, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address
