"""The page of one's own limits: what the policy allows, what of it is used, and which groups are open."""

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import render

from accounts.limits import lesser
from accounts.models import User
from accounts.requests import UserRequest, signed_in_page
from folders.models import Folder, StorageRoot
from folders.quotas.rules import StorageUse, storage_uses
from pages.overview.allowance import allowances_of
from resources.models import Host, Image, ImageSource, ResourceGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A resource group, and the largest amounts that one of its hosts has."""

    group: ResourceGroup
    cpu: int
    memory: int
    fgpu: int  # milli-fGPU


@signed_in_page
def my_limits(request: UserRequest) -> HttpResponse:
    """Show what the user may use, and uses."""
    user = request.user
    context = {
        "allowances": allowances_of(user),
        "storage": _storage(user),
        "folder_count": Folder.objects.filter(owner=user).count(),
        "image_count": Image.objects.filter(owner=user, source=ImageSource.SESSION, removed_at=None).count(),
        "array_tasks": lesser(user.policy.max_array_tasks, settings.COMPUTE_MAX_ARRAY_TASKS),
        "groups": _groups(user),
    }
    return render(request, "overview/limits.html", context)


def _storage(user: User) -> list[tuple[StorageRoot, StorageUse]]:
    """Return the storage roots with folders of the user, and what these take; three queries."""
    uses = storage_uses(user)
    return [(root, uses[root.pk]) for root in StorageRoot.objects.filter(pk__in=uses).order_by("name")]


def _groups(user: User) -> list[GroupRow]:
    """Return the groups that the user may use; two queries."""
    groups = list(ResourceGroup.objects.usable_by(user))
    hosts = Host.objects.filter(group__in=groups).annotate(gpu_count=Count("gpus", filter=Q(gpus__is_present=True)))
    largest: dict[int, tuple[int, int, int]] = {}
    for group_id, *amounts in hosts.values_list("group", "cpu", "memory", "gpu_count"):
        best = largest.get(group_id, (0, 0, 0))
        largest[group_id] = (max(best[0], amounts[0]), max(best[1], amounts[1]), max(best[2], amounts[2]))
    rows = []
    for group in groups:
        cpu, memory, gpu_count = largest.get(group.pk, (0, 0, 0))
        rows.append(GroupRow(group=group, cpu=cpu, memory=memory, fgpu=gpu_count * group.gpu_capacity))
    return rows
