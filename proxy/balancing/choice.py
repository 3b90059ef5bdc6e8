"""Which replica of a service gets a request: that with the fewest outstanding, unless the request is bound to one."""

import asyncio
import secrets
from collections import defaultdict
from typing import Final

from proxy.authorization.services import STICKY_BY_COOKIE
from proxy.balancing.line import Turn
from proxy.balancing.replicas import BalancedReplica, by_key, least_outstanding
from proxy.balancing.shares import NO_REVISION, RevisionShares
from proxy.routes import Service

AVOID_SECONDS: Final = 5.0  # for which a replica that could not be reached is chosen last


class ReplicaChoice:
    """The replicas of a service that take requests, and whose turn it is among them."""

    def __init__(self) -> None:
        self.taking: list[BalancedReplica] = []
        self._loop = asyncio.get_running_loop()
        self._shares = RevisionShares()
        # by revision: the replica to begin with, or all processes would begin with the same
        self._starts: defaultdict[int, int] = defaultdict(lambda: secrets.randbelow(1024))
        self._avoided_until = 0.0  # loop time until which any replica is avoided
        self._sticky = ""
        self._limit = 0  # outstanding requests of a replica at most, 0: any number

    def update(self, service: Service, taking: list[BalancedReplica]) -> None:
        """Learn the service's rules and which of its replicas take requests."""
        self.taking = taking
        self._sticky, self._limit = service.sticky, service.concurrency
        self._shares.update(service.weights)

    def avoid(self, replica: BalancedReplica) -> None:
        """Choose others for a while: it could not be reached."""
        self._avoided_until = replica.avoided_until = self._loop.time() + AVOID_SECONDS

    @property
    def is_full(self) -> bool:
        """Whether each replica has as many requests as it may, so that there is none for any turn."""
        return self._limit > 0 and all(each.outstanding.count() >= self._limit for each in self.taking)

    def take(self, turn: Turn) -> BalancedReplica | None:
        """Count the request at the replica chosen for it, and return that; None while it is to wait."""
        candidates = self.taking
        if turn.tried is not None:
            candidates = [each for each in candidates if each is not turn.tried]
        if self._shares.are_equal and not self._avoided_until and not self._sticky:
            return self._least(candidates, NO_REVISION) if candidates else None
        candidates = self._shares.sharing(candidates)
        if self._avoided_until and candidates:
            candidates = self._without_avoided(candidates)
        if self._sticky and (pinned := self._pinned(candidates, turn)):
            return pinned if self._count_at(pinned) else None
        if not candidates:
            return None
        for revision, replicas in self._shares.by_turn(candidates):
            if replica := self._least(replicas, revision):
                self._shares.begun(revision, candidates)
                return replica
        return None

    def _least(self, replicas: list[BalancedReplica], revision: int) -> BalancedReplica | None:
        """Count the request at the replica with the fewest, and return that; None if it has as many as it may."""
        index = least_outstanding(replicas, self._starts[revision])
        self._starts[revision] = index + 1
        return replicas[index] if self._count_at(replicas[index]) else None

    def _without_avoided(self, candidates: list[BalancedReplica]) -> list[BalancedReplica]:
        now = self._loop.time()
        if now >= self._avoided_until:
            self._avoided_until = 0.0
            return candidates
        return [each for each in candidates if each.avoided_until <= now] or candidates

    def _pinned(self, candidates: list[BalancedReplica], turn: Turn) -> BalancedReplica | None:
        """Return the replica that has to serve the request, None if any may."""
        if self._sticky == STICKY_BY_COOKIE:
            wanted = turn.principal.replica
            return next((each for each in candidates if each.id == wanted), None) if wanted else None
        key = turn.sticky_key
        return by_key(self._shares.of_key(candidates, key), key) if key and candidates else None

    def _count_at(self, replica: BalancedReplica) -> bool:
        """Count one more request at a replica; False if that would be too many.

        It is counted before the others are looked at again, so that two processes never take the last place both.
        """
        outstanding, limit = replica.outstanding, self._limit
        if limit and outstanding.count() >= limit:
            return False
        outstanding.add()
        if not limit or outstanding.count() <= limit:
            return True
        outstanding.remove()
        return False
