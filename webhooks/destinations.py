"""Which addresses the platform sends webhooks to, so that nobody reaches its own network through it. No Django."""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from imports.fetcher import public_addresses
from imports.fetcher.public_addresses import IPAddress, IPNetwork, is_in
from imports.fetcher.public_addresses import networks_of as networks_of

MAX_URL_LENGTH: Final = 500


class InvalidUrlError(ValueError):
    """A webhook cannot have this URL; the message says why."""


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
    return is_in(address, networks) or (is_encrypted and public_addresses.is_allowed(address, ()))
