"""Connections that have shown no right to use an app yet: few at once, so that idle strangers leave room for others."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from proxy import responses
from proxy.authorization import Network, is_inside
from proxy.limits import ProxyLimits
from proxy.responses import LocalResponse

IPV6_NETWORK_BITS: Final = 64  # of an address, as one customer gets them: the rest are the customer's to choose
RETRY: Final = (b"Retry-After", b"5")
TOO_MANY_OF_YOURS: Final = responses.text(429, "Too many connections from your address wait here.", RETRY, closes=True)
TOO_MANY: Final = responses.text(503, "Too many connections wait here.", RETRY, closes=True)


class PendingConnection:
    """One connection's place among those that wait."""

    def __init__(self, pending: "PendingConnections", source: str) -> None:
        self._pending: PendingConnections | None = pending
        self._source = source

    def end(self) -> None:
        """Give the place back; done already is success."""
        if self._pending:
            self._pending.leave(self._source)
            self._pending = None


class PendingConnections:
    """Counts them by where they come from, and in all. Servers in front are not counted: their clients are many."""

    def __init__(self, limits: ProxyLimits, trusted_proxies: Sequence[Network] = ()) -> None:
        self._limits = limits
        self._trusted_proxies = trusted_proxies
        self._sources: Counter[str] = Counter()
        self._total = 0

    def admit(self, transport: asyncio.Transport) -> PendingConnection | None:
        """Return the place of a connection that was just made; None where there is none left: it is told, and ended."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if peer else ""
        source = source_of(address)
        if not source or is_inside(address, self._trusted_proxies) or is_inside(source, self._trusted_proxies):
            return PendingConnection(self, "")
        if refusal := self._refusal(source):
            transport.write(refusal.to_bytes())
            transport.close()
            return None
        self._sources[source] += 1
        self._total += 1
        return PendingConnection(self, source)

    def leave(self, source: str) -> None:
        """Count one less; "" was never counted."""
        if source:
            self._total -= 1
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]  # addresses are many

    def _refusal(self, source: str) -> LocalResponse | None:
        if self._sources[source] >= self._limits.pending_per_address:
            return TOO_MANY_OF_YOURS
        return TOO_MANY if self._total >= self._limits.pending else None


def source_of(address: str) -> str:
    """Return whom an address counts as: one of IPv6 as its network, one of IPv4 as itself, however it is written."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), IPV6_NETWORK_BITS), strict=False))
