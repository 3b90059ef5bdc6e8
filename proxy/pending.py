"""Limits the connections that have not been authorized yet, so that idle clients cannot keep others out."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from proxy.authorization.networks import Network, is_inside
from proxy.counters import ConnectionCounters
from proxy.http import responses
from proxy.http.responses import LocalResponse
from proxy.limits import ProxyLimits

IPV6_PREFIX_BITS: Final = 64  # the network that one customer usually gets, whose addresses they choose freely
TOTAL_KEY: Final = "pending connections"
RETRY_AFTER: Final = (b"Retry-After", b"5")
ADDRESS_LIMIT_REACHED: Final = responses.text(
    429, "Too many connections from your address wait here.", RETRY_AFTER, closes=True
)
TOTAL_LIMIT_REACHED: Final = responses.text(503, "Too many connections wait here.", RETRY_AFTER, closes=True)


class PendingConnection:
    """The place of one connection in the count."""

    def __init__(self, pending: "PendingConnections", source: str) -> None:
        self._pending: PendingConnections | None = pending
        self._source = source

    def release(self) -> None:
        """Stop counting the connection; no-op if that was done already."""
        if self._pending:
            self._pending.release(self._source)
            self._pending = None


class PendingConnections:
    """Counts pending connections by source address and in total; those of trusted proxies are not counted."""

    def __init__(self, limits: ProxyLimits, trusted_proxies: Sequence[Network], counters: ConnectionCounters) -> None:
        self._limits = limits
        self._trusted_proxies = trusted_proxies
        self._counters = counters

    def admit(self, transport: asyncio.Transport) -> PendingConnection | None:
        """Count a new connection; send 429 or 503, close it and return None if a limit is reached."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if peer else ""
        source = source_of(address)
        if not source or is_inside(address, self._trusted_proxies) or is_inside(source, self._trusted_proxies):
            return PendingConnection(self, "")
        if refusal := self._refusal(source):
            transport.write(refusal.to_bytes())
            transport.close()
            return None
        self._counters.add(_key(source))
        self._counters.add(TOTAL_KEY)
        return PendingConnection(self, source)

    def release(self, source: str) -> None:
        """Count one connection of the source less; "" is never counted."""
        if source:
            self._counters.remove(_key(source))
            self._counters.remove(TOTAL_KEY)

    def _refusal(self, source: str) -> LocalResponse | None:
        if self._counters.count(_key(source)) >= self._limits.pending_per_address:
            return ADDRESS_LIMIT_REACHED
        return TOTAL_LIMIT_REACHED if self._counters.count(TOTAL_KEY) >= self._limits.pending_total else None


def _key(source: str) -> str:
    return f"pending {source}"


def source_of(address: str) -> str:
    """Return what an IP address is counted as: its /64 for IPv6, itself for IPv4, mapped addresses included."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), IPV6_PREFIX_BITS), strict=False))
