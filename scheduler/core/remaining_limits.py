"""What limits leave to users and projects, and what users hold of a group. Pure."""

from collections.abc import Iterable
from math import inf
from typing import Final

from accounts.limits import PolicyLimits
from scheduler.core.types import HostView, LimitHolder, RunningSession, SessionRequest, Shape

UNLIMITED: Final = PolicyLimits()
DOMINANT_SHARE_SCALE: Final = 10**9  # dominant shares are compared in billionths of a group


class RemainingLimits:
    """Amounts that a holder of limits may still take; infinite without a limit, negative if limits were lowered."""

    __slots__ = ("cpu", "fgpu_milli", "limits", "memory_bytes", "sessions")

    def __init__(self, holder: LimitHolder) -> None:
        """Take the limits less what is held."""
        limits, used = holder.limits, holder.used
        self.limits: PolicyLimits = limits
        self.cpu = inf if limits.cpu is None else limits.cpu - used.cpu
        self.memory_bytes = inf if limits.memory is None else limits.memory - used.memory
        self.fgpu_milli = inf if limits.fgpu is None else limits.fgpu - used.fgpu
        self.sessions = inf if limits.sessions is None else limits.sessions - used.sessions

    def are_exceeded_by(self, request: SessionRequest | Shape) -> bool:
        """Return whether one more session of this size would exceed a limit."""
        return (
            self.sessions < 1
            or self.cpu < request.cpu
            or self.memory_bytes < request.memory_bytes
            or self.fgpu_milli < request.fgpu_milli
        )

    def add(self, shape: Shape, sign: int) -> None:
        """Count a session that ended (1) or started (-1)."""
        self.cpu += sign * shape.cpu
        self.memory_bytes += sign * shape.memory_bytes
        self.fgpu_milli += sign * shape.fgpu_milli
        self.sessions += sign


class DominantShares:
    """What each user holds of a group, for dominant-resource fairness (Ghodsi et al., NSDI 2011)."""

    def __init__(self, hosts: Iterable[HostView], running: Iterable[RunningSession]) -> None:
        """Take the hosts of the group and the sessions that run there."""
        hosts = tuple(hosts)
        self._totals = (
            sum(host.cpu for host in hosts),
            sum(host.memory_bytes for host in hosts),
            sum(gpu.capacity_milli for host in hosts for gpu in host.gpus),
        )
        self._held: dict[int, list[int]] = {}
        for session in running:
            self.add(session.owner_id, session.shape, 1)

    def add(self, owner_id: int, shape: Shape, sign: int) -> None:
        """Count a session that started (1) or ended (-1)."""
        held = self._held.setdefault(owner_id, [0, 0, 0])
        for position, amount in enumerate(shape[:3]):
            held[position] += sign * amount

    def of(self, owner_id: int) -> int:
        """Return the user's dominant share: the largest part, in billionths, that they hold of any resource."""
        held = self._held.get(owner_id, (0, 0, 0))
        parts = (
            amount * DOMINANT_SHARE_SCALE // total for amount, total in zip(held, self._totals, strict=True) if total
        )
        return max(parts, default=0)
