"""Shares of the requests that the revisions of a service get, while one is rolled out by steps."""

import secrets
from collections.abc import Sequence
from hashlib import blake2b

from proxy.balancing.replicas import BalancedReplica

Weights = tuple[tuple[int, int], ...]  # (number of the revision, percent)
NO_REVISION = -1  # stands for all, where they have no weights


class RevisionShares:
    """Which revision is next: not by chance but in turn, so that 5 % are one of each 20 requests.

    That is smooth weighted round robin: each draw gives every revision its weight as credit, and the one with most
    credit pays the sum of all.
    """

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}
        self._credit: dict[int, int] = {}

    @property
    def are_equal(self) -> bool:
        """Whether no revision has a weight."""
        return not self._weights

    def update(self, weights: Weights) -> None:
        """Learn the weights. New ones begin anywhere in their order, or all processes would begin with the same."""
        new = dict(weights)
        if new == self._weights:
            return
        self._weights, self._credit = new, {}
        shared = [number for number, weight in weights if weight > 0]
        for _ in range(secrets.randbelow(sum(new.values()) + 1) if len(shared) > 1 else 0):
            self._charge(self._in_turn(shared)[0], shared)

    def sharing(self, replicas: list[BalancedReplica]) -> list[BalancedReplica]:
        """Return the replicas of revisions that have a share; all of them where none has one."""
        if not self._weights:
            return replicas
        return [each for each in replicas if self._weights.get(each.revision, 0) > 0] or replicas

    def by_turn(self, replicas: list[BalancedReplica]) -> list[tuple[int, list[BalancedReplica]]]:
        """Return the replicas by revision: the one whose turn it is first, and those that serve if that is full."""
        if not self._weights:
            return [(NO_REVISION, replicas)]
        groups = _by_revision(replicas)
        return [(number, groups[number]) for number in self._in_turn(list(groups))]

    def begun(self, revision: int, replicas: Sequence[BalancedReplica]) -> None:
        """Count a request that has begun at this revision, of those that `replicas` have."""
        if self._weights:
            self._charge(revision, list(_by_revision(replicas)))

    def of_key(self, replicas: list[BalancedReplica], key: bytes) -> list[BalancedReplica]:
        """Return the replicas of the revision for this key; as the share of the newest grows, it loses no key."""
        groups = _by_revision(replicas)
        total = sum(self._weights.get(number, 0) for number in groups)
        if not total:
            return replicas
        point = int.from_bytes(blake2b(key, digest_size=8, person=b"revision").digest()) % total
        for number in sorted(groups, reverse=True):
            point -= self._weights.get(number, 0)
            if point < 0:
                return groups[number]
        return replicas

    def _in_turn(self, numbers: list[int]) -> list[int]:
        next_credit = {number: self._credit.get(number, 0) + self._weights.get(number, 0) for number in numbers}
        return sorted(numbers, key=lambda number: (-next_credit[number], number))

    def _charge(self, paying: int, numbers: list[int]) -> None:
        """Give all of these credit, and have one pay. While one is full, no more is owed to it than one request."""
        total = sum(self._weights.get(number, 0) for number in numbers)
        for number in numbers:
            credit = self._credit.get(number, 0) + self._weights.get(number, 0) - (total if number == paying else 0)
            self._credit[number] = max(-total, min(total, credit))


def _by_revision(replicas: Sequence[BalancedReplica]) -> dict[int, list[BalancedReplica]]:
    groups: dict[int, list[BalancedReplica]] = {}
    for each in replicas:
        groups.setdefault(each.revision, []).append(each)
    return groups
