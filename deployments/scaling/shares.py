"""A bigger share of a GPU for each replica before a further one. Pure.

The autoscaler counts in units: a unit is a replica with the share of its revision, which the targets of rules are for.
Replicas with more of their GPUs are as many units as their shares together hold.
"""

from dataclasses import dataclass

from resources.amounts.units import FGPU_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlan:
    """How many replicas are wanted, and to which share those that serve with less grow, or those with more shrink."""

    replicas: int
    share: int = 0  # 0: all keep theirs
    grows: bool = False

    def of(self, held: int) -> int:
        """Return the share of a replica that has so much."""
        if not self.share:
            return held
        return max(held, self.share) if self.grows else min(held, self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShares:
    """Shares of a GPU, in milli-fGPU, of the replicas of a deployment."""

    base: int  # of its revision, with which a replica begins
    held: tuple[int, ...]  # of those that serve, the oldest first, which stay longest
    limit: int  # of a replica, to which it may grow
    can_change: bool = True

    @property
    def most(self) -> int:
        """The share of a replica at most: whole units, as less adds nothing that counts."""
        return max(1, self.limit // self.base) * self.base

    def total(self, replicas: int) -> int:
        """Return what so many replicas hold together, with the share of the revision for each that is yet to serve."""
        return sum(self.held[:replicas]) + self.base * max(0, replicas - len(self.held))

    def units(self, replicas: int) -> int:
        """Return how many replicas with the share of the revision so many are, with what they have now."""
        return max(replicas, self.total(replicas) // self.base)

    def most_units(self, replicas: int) -> int:
        """Return how many units so many replicas are at most."""
        return replicas * self.most // self.base if self.can_change else self.units(replicas)

    def replicas_without(self, units: int, least: int) -> int:
        """Return how many replicas so many units are with the shares of now: where these cannot be changed."""
        replicas = least
        while self.total(replicas) < units * self.base:
            replicas += 1
        return replicas


def plan(units: int, *, replicas: int, least: int, shares: ReplicaShares) -> SharePlan:
    """Return what is wanted for so many units.

    Shares grow before a further replica comes, the smallest first, and shrink, the largest first, only once the
    replicas have gone that are spare with them.
    """
    enough, needed = shares.replicas_without(units, least), units * shares.base
    if enough < replicas or (enough > replicas and not shares.can_change):
        return SharePlan(replicas=enough)
    if enough == replicas:
        spare = shares.total(replicas) - needed
        is_spare = shares.can_change and spare >= replicas * FGPU_STEP  # less is left by rounding
        return SharePlan(replicas=replicas, share=_cap(needed, replicas, shares) if is_spare else 0)
    count = max(least, -(-needed // shares.most))
    if count > replicas and all(held >= shares.most for held in shares.held):
        return SharePlan(replicas=min(count, enough))
    share = shares.most if count > replicas else _floor(needed, replicas, shares)
    return SharePlan(replicas=replicas, share=share, grows=True)


def _cap(needed: int, replicas: int, shares: ReplicaShares) -> int:
    """Return the least share with which this is held where none has more; 0: all are needed as they are."""
    yet = shares.total(replicas) - sum(shares.held[:replicas])
    caps = range(shares.base, max(shares.held), FGPU_STEP)
    return next((cap for cap in caps if yet + sum(min(held, cap) for held in shares.held[:replicas]) >= needed), 0)


def _floor(needed: int, replicas: int, shares: ReplicaShares) -> int:
    """Return the least share with which this is held where none has less, as far as one may grow."""
    yet = shares.total(replicas) - sum(shares.held[:replicas])
    floors = range(shares.base, shares.most, FGPU_STEP)
    fits = (floor for floor in floors if yet + sum(max(held, floor) for held in shares.held[:replicas]) >= needed)
    return next(fits, shares.most)
