"""What limits leave to users and projects. Pure."""

from math import inf
from typing import Final

from accounts.limits import PolicyLimits
from scheduler.core.types import LimitHolder, RunningSession, SessionRequest

UNLIMITED: Final = PolicyLimits()


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

    def are_exceeded_by(self, request: SessionRequest) -> bool:
        """Return whether one more session of this size would exceed a limit."""
        return (
            self.sessions < 1
            or self.cpu < request.cpu
            or self.memory_bytes < request.memory_bytes
            or self.fgpu_milli < request.fgpu_milli
        )

    def add(self, session: RunningSession, sign: int) -> None:
        """Count a session that ended (1) or started (-1), with all cores that it asked for."""
        self.cpu += sign * session.cpu
        self.memory_bytes += sign * session.memory_bytes
        self.fgpu_milli += sign * session.fgpu_milli
        self.sessions += sign
