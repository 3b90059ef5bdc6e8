"""Resources that the sessions of users and projects hold now, and what their policies leave."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count, Sum

from accounts.limits import Amounts, PolicyLimits, least, remaining
from accounts.models import Project, User
from resources.models import ResourceGroup
from sessions.lifecycle import HOSTED
from sessions.models import Session, SessionQuerySet

Holder = User | Project  # whose sessions are limited together


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """Limits of a user or project, what its sessions hold, and how many wait."""

    limits: PolicyLimits
    used: Amounts
    pending: int

    @property
    def left(self) -> PolicyLimits:
        """What may still be had; `pending` is how many more may wait."""
        return remaining(self.limits, self.used, self.pending)


def limit_use_of(holder: Holder) -> LimitUse:
    """Return what a user or project may hold and holds; two queries, and the policy."""
    limits = holder.limits() if isinstance(holder, Project) else holder.policy.limits()
    return LimitUse(limits=limits, used=usage_of(holder), pending=pending_of(holder))


def left_for(user: User, project: Project | None = None) -> PolicyLimits:
    """Return what `user` may still ask for, for the project or for none: the least that a policy leaves.

    The one answer for pages, API and advisor; the scheduler computes the same from its state.
    """
    left = limit_use_of(user).left
    return left if project is None else least(left, limit_use_of(project).left)


def left_for_each(user: User, projects: Sequence[Project]) -> dict[int | None, PolicyLimits]:
    """Return `left_for` the user without a project (None), and for each of these projects; four queries at most."""
    own = limit_use_of(user).left
    if not projects:
        return {None: own}
    ids = [project.pk for project in projects]
    waiting = Session.objects.waiting().filter(project__in=ids).order_by()
    pending = dict(waiting.values_list("project").annotate(Count("id")))
    held = held_for(ids)
    left = {
        each.pk: remaining(each.limits(), held.get(each.pk, Amounts()), pending.get(each.pk, 0)) for each in projects
    }
    return {None: own} | {pk: least(own, its) for pk, its in left.items()}


def usage_of(holder: Holder, group: ResourceGroup | None = None) -> Amounts:
    """Return the amounts that the holder's sessions hold now, in all groups or in one; one query."""
    sessions = _sessions_of(holder).filter(status__in=HOSTED)
    if group is not None:
        sessions = sessions.filter(resource_group=group)
    held = sessions.aggregate(cpu=Sum("cpu"), memory=Sum("memory"), fgpu=Sum("fgpu"), sessions=Count("id"))
    return Amounts(**{name: value or 0 for name, value in held.items()})


def held_by(owner_ids: Iterable[int]) -> dict[int, Amounts]:
    """Return the amounts that the sessions of each of these users hold now, by user id; one query."""
    return _held("owner", owner_ids)


def held_for(project_ids: Iterable[int]) -> dict[int, Amounts]:
    """Return the amounts that the sessions of each of these projects hold now, by project id; one query."""
    return _held("project", project_ids)


def pending_of(holder: Holder) -> int:
    """Return the number of the holder's pending sessions; one query."""
    return _sessions_of(holder).waiting().count()


def _sessions_of(holder: Holder) -> SessionQuerySet:
    if isinstance(holder, Project):
        return Session.objects.filter(project=holder)
    return Session.objects.filter(owner=holder)


def _held(column: str, ids: Iterable[int]) -> dict[int, Amounts]:
    sessions = Session.objects.filter(**{f"{column}__in": list(ids)}, status__in=HOSTED).order_by()
    sums = sessions.values_list(column).annotate(Sum("cpu"), Sum("memory"), Sum("fgpu"), Count("id"))
    return {
        holder_id: Amounts(cpu=cpu, memory=memory, fgpu=fgpu, sessions=count)
        for holder_id, cpu, memory, fgpu, count in sums
    }
