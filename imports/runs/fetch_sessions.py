"""The batch session that fetches for its owner: launched as users launch sessions, with their limits and egress."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from accounts.models import Project, User
from accounts.policies import bounds_of
from imports.models import Import
from imports.runs import delivery
from resources.amounts.units import GIB, MIB
from resources.images import builds
from resources.models import Image, ResourceGroup
from sessions.errors import GENERAL, RejectedError
from sessions.launching import services
from sessions.launching.image_choice import RESERVED
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest

MEMORY: Final = GIB
SHARED_MEMORY: Final = 64 * MIB
TIME_LIMIT: Final = timedelta(hours=2)


def request_for(
    made: Import, mounts: Sequence[MountRequest], project: Project | None, group: ResourceGroup | None
) -> LaunchRequest:
    """Return the request for the session that fetches. Raises RejectedError where the owner can have none.

    Without a group it is in the first one in which nothing speaks against it, or in the first of all.
    """
    image = fetching_image(made.owner)
    groups = ResourceGroup.objects.usable_for(made.owner, project).filter(allow_batch=True)
    candidates = [group] if group else list(groups.order_by("name"))
    if not candidates:
        raise RejectedError({GENERAL: "You may use no resource group that takes batch sessions, which fetch."})
    most = bounds_of(made.owner, project).max_lifetime
    request = LaunchRequest(
        image=image,
        resource_group=candidates[0],
        is_any_group=group is None,
        project=project,
        name=f"import-{secrets.token_hex(3)}",
        cpu=max(1, image.min_cpu),
        memory=max(MEMORY, image.min_memory),
        shared_memory=SHARED_MEMORY,
        command=delivery.command_of(made.pk),
        time_limit=min(TIME_LIMIT, most) if most else TIME_LIMIT,
        mounts=mounts,
    )
    possible = (replace(request, resource_group=each) for each in candidates)
    return next((each for each in possible if not services.problems(made.owner, each)), request)


def fetching_image(owner: User) -> Image:
    """Return the smallest image that the platform builds, and so has git. Raises RejectedError."""
    built = Image.objects.usable_by(owner).filter(owner=None, reference__startswith=RESERVED, min_fgpu=0)
    for image in built.select_related("build").order_by("min_memory", "-is_default", "pk"):
        if builds.refusal(image) is None:
            return image
    raise RejectedError({GENERAL: "No image that can fetch is offered; ask an administrator to enable Python."})
