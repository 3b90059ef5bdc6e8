"""A bigger share of a GPU for each replica before a further one. Pure.

The autoscaler counts in units: a unit is a replica with the share of its revision, which the targets of rules are for.
A replica with more of its GPU is so many units.
"""

from dataclasses import dataclass

from resources.amounts.units import FGPU_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShares:
    """Shares of a GPU, in milli-fGPU, of each replica of a deployment."""

    base: int  # of its revision
    now: int  # at least, of those that serve
    most: int

    def units(self, replicas: int) -> int:
        """Return how many replicas with the share of the revision so many are, with what they have now."""
        return max(replicas, replicas * self.now // self.base)

    def most_units(self, replicas: int) -> int:
        """Return how many units so many replicas are at most."""
        return replicas * max(self.base, self.most) // self.base

    def replicas_without(self, units: int, least: int) -> int:
        """Return how many replicas so many units are with the shares of now: where these cannot be changed."""
        return max(least, -(-units * self.base // max(self.base, self.now)))


def plan(units: int, *, replicas: int, least: int, shares: ReplicaShares) -> tuple[int, int]:
    """Return how many replicas are wanted for so many units, and the share of each.

    A share grows before a further replica comes, and shrinks only once the replicas have gone that are spare with it.
    """
    if (enough := shares.replicas_without(units, least)) < replicas:
        return enough, shares.now
    count = max(replicas, least, -(-units * shares.base // shares.most))
    if count > replicas and shares.now < shares.most:
        return replicas, shares.most
    share = -(-units * shares.base // count)
    return count, min(shares.most, max(shares.base, -(-share // FGPU_STEP) * FGPU_STEP))
