"""The limits of users and projects across resource groups, whose passes run at the same time.

They are checked under a lock of each user and project whose limits apply.
"""

from collections.abc import Mapping, Sequence

from accounts import limits
from accounts.limits import Amounts, PolicyLimits
from scheduler.core.queue.remaining_limits import UNLIMITED, RemainingLimits
from scheduler.core.types import Placement
from scheduler.state.scheduler_state import SchedulerState
from sessions.limits import held as usage
from sessions.limits import locks as capacity_locks


class ExceededLimitError(Exception):
    """A pass over another group has used up a limit since the state was read; nothing may be written by that state."""


class _Asked:
    """What placements ask of holders of one kind, users or projects, whose limits apply."""

    def __init__(self) -> None:
        self.amounts: dict[int, Amounts] = {}
        self.limits: dict[int, PolicyLimits] = {}

    def add(self, holder_id: int, remaining: RemainingLimits | None, one: Amounts) -> None:
        """Count a placement of the holder; no-op where no limit applies."""
        if remaining is not None and remaining.limits != UNLIMITED:
            self.limits[holder_id] = remaining.limits
            self.amounts[holder_id] = self.amounts.get(holder_id, Amounts()) + one

    def check(self, kind: str, held: Mapping[int, Amounts]) -> None:
        """Raise ExceededLimitError where what is held and asked together exceeds a limit."""
        for holder_id, policy_limits in self.limits.items():
            wanted = self.amounts[holder_id] + held.get(holder_id, Amounts())
            if names := limits.exceeded(policy_limits, wanted):
                raise ExceededLimitError(f"{kind} {holder_id}: {', '.join(names)} by now")


def hold(state: SchedulerState, placements: Sequence[Placement]) -> None:
    """Lock the users and projects with limits among those of `placements`, and check them against what is held by now.

    In the transaction that writes them next. Raises ExceededLimitError. Three queries, two more with projects; none
    where no limits apply.
    """
    users, projects = _Asked(), _Asked()
    cluster = state.incremental.cluster
    for placement in placements:
        session = state.placed(placement.session_id)
        one = Amounts(cpu=session.cpu, memory=session.memory_bytes, fgpu=session.fgpu_milli, sessions=1)
        users.add(session.owner_id, cluster.limits.users.get(session.owner_id), one)
        if session.project_id is not None:
            projects.add(session.project_id, cluster.limits.projects.get(session.project_id), one)
    if not users.limits and not projects.limits:
        return
    capacity_locks.hold_limits(users.limits, projects.limits)
    if users.limits:
        users.check("user", usage.held_by(users.limits))
    if projects.limits:
        projects.check("project", usage.held_for(projects.limits))
