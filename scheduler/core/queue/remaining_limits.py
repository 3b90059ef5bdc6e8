"""What limits leave to users and projects. Pure."""

from collections.abc import Mapping
from copy import copy as shallow_copy
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
        """Return whether one more session, or cluster, of this size would exceed a limit."""
        return (
            self.sessions < request.members
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


class HolderLimits:
    """Remaining limits of users and projects, by id: both bind a session of a project. Who is not in them is free."""

    __slots__ = ("projects", "users")

    def __init__(self, users: Mapping[int, LimitHolder], projects: Mapping[int, LimitHolder]) -> None:
        self.users = {owner_id: RemainingLimits(holder) for owner_id, holder in users.items()}
        self.projects = {project_id: RemainingLimits(holder) for project_id, holder in projects.items()}

    def copy(self) -> "HolderLimits":
        """Return an independent copy."""
        copy = HolderLimits({}, {})
        copy.users = {owner_id: shallow_copy(remaining) for owner_id, remaining in self.users.items()}
        copy.projects = {project_id: shallow_copy(remaining) for project_id, remaining in self.projects.items()}
        return copy

    def of(self, owner_id: int, project_id: int | None) -> tuple[RemainingLimits, ...]:
        """Return the remaining limits that apply to a session, the user's first; without those that are unknown."""
        found = self.users.get(owner_id), None if project_id is None else self.projects.get(project_id)
        return tuple(remaining for remaining in found if remaining is not None)

    def apply_to(self, owner_id: int, project_id: int | None) -> bool:
        """Return whether any limit applies to a session of this user and project."""
        return any(remaining.limits != UNLIMITED for remaining in self.of(owner_id, project_id))

    def count(self, session: RunningSession, sign: int) -> None:
        """Count a session that ended (1) or started (-1) in the limits that apply to it."""
        user = self.users.get(session.owner_id)
        if user is not None:
            user.add(session, sign)
        project = None if session.project_id is None else self.projects.get(session.project_id)
        if project is not None:
            project.add(session, sign)

    def are_exceeded_by(self, request: SessionRequest) -> bool:
        """Return whether limits forbid the request now."""
        remaining = self.users.get(request.owner_id)
        if remaining is not None and remaining.are_exceeded_by(request):
            return True
        if request.project_id is None:
            return False
        remaining = self.projects.get(request.project_id)
        return remaining is not None and remaining.are_exceeded_by(request)
