"""The elastic members of clusters that a scheduler's process knows: those that may start, and those that run. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Final

from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.elastic import find_beside, in_the_way_of
from scheduler.core.queue.remaining_limits import HolderLimits
from scheduler.core.types import Placement, RunningSession, SessionRequest, entries_in
from scheduler.snapshot.queue import WaitingSession

MAX_CONSIDERED: Final = 100  # waiting sessions of a user and project, whose limits elastic members may use up
HolderIds = tuple[int, int | None]  # user and project


class ElasticMembers:
    """Elastic members, of each cluster the next that may start, and all that run."""

    def __init__(self, waiting: Iterable[WaitingSession], running: Iterable[RunningSession]) -> None:
        """Take the sessions that wait and run; those that are no elastic members are left out."""
        self.waiting: dict[str, WaitingSession] = {}
        self.running: dict[str, RunningSession] = {}
        self.replace_waiting((), waiting)
        self.note((), running)

    def replace_waiting(self, ids: Iterable[str], waiting: Iterable[WaitingSession]) -> None:
        """Replace what these sessions were by what they are."""
        for session_id in ids:
            self.waiting.pop(session_id, None)
        self.waiting.update((one.request.id, one) for one in waiting if one.request.beside is not None)

    def note(self, gone: Iterable[RunningSession], here: Iterable[RunningSession]) -> None:
        """Note running sessions that ended or changed, and those that started or changed."""
        for session in gone:
            self.running.pop(session.session_id, None)
        self.running.update((session.session_id, session) for session in here if session.is_elastic)

    def start(self, cluster: ClusterState, waiting: Collection[HolderIds], now: datetime) -> list[Placement]:
        """Start those for which there is room once all others have been served; `waiting` still has them afterwards.

        A user or project with limits, of whom others wait, leaves the limits to them.
        """
        found: list[Placement] = []
        for session_id in sorted(self.waiting):
            session = self.waiting[session_id]
            first, group = session.request, cluster.groups.get(session.request.group_id)
            if (
                group is None
                or session.blocked_status(now) is not None
                or _leaves_limits(first, cluster.limits, waiting)
            ):
                continue
            for request in entries_in(first.group_id, first):
                if cluster.limits.are_exceeded_by(request):
                    continue
                if (placed := find_beside(group, request)) is not None:
                    found += cluster.start_at(request, [placed], now)
                    break
        return found

    def over_limits(
        self,
        limits: HolderLimits,
        by_holders: Mapping[HolderIds, Collection[str]],
        waiting: Mapping[str, WaitingSession],
    ) -> list[str]:
        """Return the ids of those that run without which limits would allow a session that waits."""
        for (owner_id, project_id), names in by_holders.items() if self.running else ():
            shares = any(
                each.owner_id == owner_id or (project_id is not None and each.project_id == project_id)
                for each in self.running.values()
            )
            for name in islice(names, MAX_CONSIDERED) if shares else ():
                request = waiting[name].request
                is_over = all(map(limits.are_exceeded_by, entries_in(request.group_id, request)))
                found = in_the_way_of(request, limits, self.running.values()) if is_over else []
                if found:
                    return [each.session_id for each in found]
        return []


def _leaves_limits(request: SessionRequest, limits: HolderLimits, waiting: Iterable[HolderIds]) -> bool:
    """Return whether others wait that share its limits."""
    owner_id, project_id = request.owner_id, request.project_id
    return limits.apply_to(owner_id, project_id) and any(
        owner == owner_id or (project is not None and project == project_id) for owner, project in waiting
    )
