"""A replica as one process sees it, and the choice among several."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from proxy.balancing.figures import FigureCounts
from proxy.counters import KeyCounter
from proxy.routes import Route

ID_BYTES: Final = 9


class BalancedReplica:
    """One replica of a service: how many requests are under way at it, and what it has served."""

    __slots__ = ("avoided_until", "figures", "id", "outstanding", "revision", "route", "was_outstanding")

    def __init__(self, route: Route, outstanding: KeyCounter) -> None:
        self.route = route
        self.revision = 0  # number
        self.outstanding = outstanding  # requests, streams and websockets, over all processes that serve together
        self.id = replica_id(route)
        self.avoided_until = 0.0  # loop time; others are chosen until then, if there are any
        self.figures = FigureCounts()
        self.was_outstanding = False  # when the control plane was last told


def replica_id(route: Route) -> bytes:
    """Return the name of a replica in cookies, the same in every process; it says nothing of the session."""
    return blake2b(route.session.encode(), digest_size=ID_BYTES, person=b"replica").hexdigest().encode()


def least_outstanding(replicas: Sequence[BalancedReplica], start: int) -> int:
    """Return the index of the replica with the fewest outstanding requests; of equals, next to `start`.

    `replicas` are not empty.
    """
    number = len(replicas)
    if number == 1:
        return 0
    index = position = start % number
    least = replicas[index].outstanding.count()
    for _ in range(number - 1):
        position = position + 1 if position + 1 < number else 0
        count = replicas[position].outstanding.count()
        if count < least:
            index, least = position, count
    return index


def by_key(replicas: Sequence[BalancedReplica], key: bytes) -> BalancedReplica:
    """Return the replica for this key by rendezvous hashing: when one goes, only its keys go to others."""
    key = blake2b(key).digest()
    return max(replicas, key=lambda each: blake2b(each.id, key=key, digest_size=8).digest())
