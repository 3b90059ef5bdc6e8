"""What a change of a resource group means for the sessions that wait there, said when it is saved."""

from collections.abc import Collection, Iterator

from django.db.models import Q
from django.utils.translation import ngettext

from resources.models import ResourceGroup


def consequences(group: ResourceGroup, changed: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each thing that the saved change of these fields means for those who wait."""
    waiting = group.sessions.filter(status="PENDING")
    if "is_active" in changed and not group.is_active and (count := waiting.count()):
        yield ngettext(
            "%(count)s session waits here, and starts once the group is active again.",
            "%(count)s sessions wait here, and start once the group is active again.",
            count,
        ) % {"count": count}
    refused = Q(command="") if not group.allow_interactive else ~Q(command="") if not group.allow_batch else None
    if {"allow_interactive", "allow_batch"} & set(changed) and refused and (count := waiting.filter(refused).count()):
        yield ngettext(
            "%(count)s waiting session is of a kind that the group takes no longer; it keeps its place.",
            "%(count)s waiting sessions are of a kind that the group takes no longer; they keep their places.",
            count,
        ) % {"count": count}
    if {"open_to_all", "users", "projects"} & set(changed) and (count := _without_grant(group)):
        yield ngettext(
            "%(count)s session waits here whose owner may not use the group any more; it keeps its place.",
            "%(count)s sessions wait here whose owners may not use the group any more; they keep their places.",
            count,
        ) % {"count": count}
    yield from _for_amounts(group, changed)
    if "queue_order" in changed and (count := waiting.count()):
        yield ngettext(
            "%(count)s session waits here; the queue is ordered anew.",
            "%(count)s sessions wait here; the queue is ordered anew.",
            count,
        ) % {"count": count}
    if "pending_timeout" in changed and group.pending_timeout is not None and (count := waiting.count()):
        yield ngettext(
            "%(count)s session waits here, and is cancelled once it has waited for that long.",
            "%(count)s sessions wait here; those that have waited for that long are cancelled.",
            count,
        ) % {"count": count}


def _for_amounts(group: ResourceGroup, changed: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each thing that a change of shares and lifetimes means for sessions and presets."""
    waiting = group.sessions.filter(status="PENDING")
    if "fgpu_per_gpu" in changed and (count := waiting.filter(fgpu__gt=0).count()):
        yield ngettext(
            "%(count)s session waits here for a number of fGPU, each of which is another part of a GPU now.",
            "%(count)s sessions wait here for a number of fGPU, each of which is another part of a GPU now.",
            count,
        ) % {"count": count}
    if "fgpu_per_gpu" in changed and (count := group.presets.filter(fgpu__gt=0).count()):
        yield ngettext(
            "%(count)s preset of the group asks for a number of fGPU, each of which is another part of a GPU now.",
            "%(count)s presets of the group ask for a number of fGPU, each of which is another part of a GPU now.",
            count,
        ) % {"count": count}
    if "max_lifetime" in changed and group.max_lifetime is not None:
        longer = waiting.filter(Q(time_limit=None) | Q(time_limit__gt=group.max_lifetime))
        if count := longer.count():
            yield ngettext(
                "%(count)s waiting session may run for less time than it was to.",
                "%(count)s waiting sessions may run for less time than they were to.",
                count,
            ) % {"count": count}


def _without_grant(group: ResourceGroup) -> int:
    """Return how many sessions wait in the group whose owners or projects have no grant."""
    if group.open_to_all:
        return 0
    granted = Q(owner__in=group.users.values("pk")) | Q(project__in=group.projects.values("pk"))
    return group.sessions.filter(status="PENDING").exclude(granted | Q(owner__is_superuser=True)).count()
