"""Bounds the connections that have not logged in yet, per client address and in total. Pure.

A new connection is never refused: the one that has waited longest is dropped for it, so that idle connections cannot
keep out anybody who logs in at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

MAX_PER_ADDRESS: Final = 20  # connections; a /64 of IPv6 counts as one address
MAX_TOTAL: Final = 100  # connections


@dataclass(frozen=True, slots=True)
class _Pending:
    source: str
    drop: Callable[[], None]


@dataclass(slots=True)
class PendingLogins:
    """The connections that have not logged in yet, oldest first."""

    _pending: OrderedDict[Hashable, _Pending] = field(default_factory=OrderedDict)

    def add(self, connection: Hashable, source: str, drop: Callable[[], None]) -> bool:
        """Count a connection from `source`; return whether another was dropped for it, by a call of its `drop`."""
        self._pending[connection] = _Pending(source, drop)
        same = [key for key, each in self._pending.items() if each.source == source]
        if len(same) > MAX_PER_ADDRESS:
            oldest = same[0]
        elif len(self._pending) > MAX_TOTAL:
            oldest = next(iter(self._pending))
        else:
            return False
        self._pending.pop(oldest).drop()
        return True

    def remove(self, connection: Hashable) -> None:
        """Stop counting a connection, which has logged in or ended; no-op if that was done already."""
        self._pending.pop(connection, None)
