"""What users and projects may hold by their policies, and what they hold."""

from collections.abc import Collection, Iterable
from typing import Final

from accounts.limits import Amounts, PolicyLimits
from accounts.models import Project, User
from scheduler.core.types import LimitHolder, RunningSession

NOTHING: Final = Amounts()


def limits_of(owner_ids: Collection[int]) -> dict[int, PolicyLimits]:
    """Return the policy limits of these users, by id; takes one query."""
    return {user.pk: user.policy.limits() for user in User.objects.filter(pk__in=owner_ids).select_related("policy")}


def project_limits_of(project_ids: Collection[int]) -> dict[int, PolicyLimits]:
    """Return the limits of these projects, by id; takes one query, none without projects."""
    if not project_ids:
        return {}
    found = Project.objects.filter(pk__in=project_ids).select_related("policy")
    return {project.pk: project.limits() for project in found}


def project_holders(project_ids: Collection[int], running: Iterable[RunningSession]) -> dict[int, LimitHolder]:
    held = project_usage_of(running) if project_ids else {}
    return {
        project_id: LimitHolder(limits=its, used=held.get(project_id, NOTHING))
        for project_id, its in project_limits_of(project_ids).items()
    }


def usage_of(running: Iterable[RunningSession]) -> dict[int, Amounts]:
    """Return what the sessions of each user hold, by user id."""
    return _usage_by((one.owner_id, one) for one in running)


def project_usage_of(running: Iterable[RunningSession]) -> dict[int, Amounts]:
    """Return what the sessions of each project hold, by project id."""
    return _usage_by((one.project_id, one) for one in running if one.project_id is not None)


def _usage_by(running: Iterable[tuple[int, RunningSession]]) -> dict[int, Amounts]:
    held: dict[int, list[int]] = {}
    for holder_id, one in running:
        sums = held.setdefault(holder_id, [0, 0, 0, 0])
        sums[0] += one.cpu
        sums[1] += one.memory_bytes
        for _, milli in one.shares:
            sums[2] += milli
        sums[3] += 1
    return {
        holder_id: Amounts(cpu=sums[0], memory=sums[1], fgpu=sums[2], sessions=sums[3])
        for holder_id, sums in held.items()
    }
