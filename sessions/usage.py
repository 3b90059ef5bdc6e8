"""Resources that users' sessions hold now."""

from collections.abc import Iterable

from django.db.models import Count, Sum

from accounts.limits import Amounts
from accounts.models import User
from resources.models import ResourceGroup
from sessions.lifecycle import HOSTED, Status
from sessions.models import Session


def usage_of(user: User, group: ResourceGroup | None = None) -> Amounts:
    """Return the amounts that `user`'s sessions hold now, in all groups or in one; one query."""
    sessions = Session.objects.filter(owner=user, status__in=HOSTED)
    if group is not None:
        sessions = sessions.filter(resource_group=group)
    held = sessions.aggregate(cpu=Sum("cpu"), memory=Sum("memory"), fgpu=Sum("fgpu"), sessions=Count("id"))
    return Amounts(**{name: value or 0 for name, value in held.items()})


def held_by(owner_ids: Iterable[int]) -> dict[int, Amounts]:
    """Return the amounts that the sessions of each of these users hold now, by user id; one query."""
    sessions = Session.objects.filter(owner__in=list(owner_ids), status__in=HOSTED).order_by()
    sums = sessions.values_list("owner").annotate(Sum("cpu"), Sum("memory"), Sum("fgpu"), Count("id"))
    return {
        owner_id: Amounts(cpu=cpu, memory=memory, fgpu=fgpu, sessions=count)
        for owner_id, cpu, memory, fgpu, count in sums
    }


def pending_of(user: User) -> int:
    """Return the number of `user`'s pending sessions; one query."""
    return Session.objects.filter(owner=user, status=Status.PENDING).count()
