"""What a user may choose on the launch page, read once for a request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from django.db.models import Q, QuerySet

from accounts.models import Project, User
from arrays.models import Array
from imports.models import Import, ImportState
from resources.images import builds
from resources.models import Gpu, Image, Preset, ResourceGroup
from sessions.launching import mounts
from sessions.launching.mounts import OfferedFolder
from sessions.models import Session

MAX_OTHERS: Final = 50  # sessions offered to depend on
PRIVATE_ENVIRONMENT: Final = "My environments"
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class LaunchOffer:
    """The images, groups, presets, folders and live sessions that a user may choose from, each read once when used."""

    owner: User
    known_groups: Sequence[ResourceGroup] | None = None  # where they were read already

    @cached_property
    def images(self) -> Sequence[Image]:
        """The images, those of the owner alone as the last."""
        return sorted(self.images_of(self.owner), key=lambda image: image.owner_id is not None)

    @cached_property
    def groups(self) -> Sequence[ResourceGroup]:
        """The resource groups."""
        return list(ResourceGroup.objects.usable_by(self.owner)) if self.known_groups is None else self.known_groups

    @cached_property
    def presets(self) -> Sequence[Preset]:
        """The presets that are offered in any of the groups."""
        groups = {group.pk: group for group in self.groups}
        found = list(self.presets_of(self.groups))
        for preset in found:
            preset.group = groups[preset.group_id] if preset.group_id else None
        return found

    @cached_property
    def folders(self) -> Sequence[OfferedFolder]:
        """The folders."""
        return mounts.offered_folders(self.owner)

    @cached_property
    def others(self) -> Sequence[Session | Array]:
        """The arrays and sessions that have not ended and that one may depend on."""
        sessions = Session.objects.allowed_as_dependencies_of(self.owner).outside_arrays().live()
        return [*self.owner.arrays.live()[:MAX_OTHERS], *sessions[:MAX_OTHERS]]

    @cached_property
    def projects(self) -> Sequence[Project]:
        """The projects."""
        return list(self.projects_of(self.owner))

    @property
    def imports(self) -> QuerySet[Import]:
        """The imports with which a session can be launched."""
        return Import.objects.filter(owner=self.owner, state=ImportState.DONE)

    @staticmethod
    def images_of(owner: User) -> QuerySet[Image]:
        """Return the images that the user may launch, with their builds."""
        return Image.objects.usable_by(owner).select_related("build")

    @staticmethod
    def projects_of(owner: User) -> QuerySet[Project]:
        """Return the projects for which the user may start sessions."""
        return Project.objects.usable_by(owner).select_related("policy")

    @staticmethod
    def presets_of(groups: Sequence[ResourceGroup]) -> QuerySet[Preset]:
        """Return the presets that are offered in these groups."""
        return Preset.objects.filter(Q(group=None) | Q(group__in=groups))

    @property
    def environments(self) -> list[tuple[str, list[Image]]]:
        """The images by environment, the newest version first; those of the owner alone as the last."""
        found: dict[str, list[Image]] = {}
        for image in self.images:
            found.setdefault(PRIVATE_ENVIRONMENT if image.owner_id else image.environment, []).append(image)
        return [(name, sorted(images, key=newest_first)) for name, images in found.items()]

    @property
    def first_image(self) -> Image | None:
        """The image to begin with: a default that is ready, else what is built next."""
        return min(self.images, key=_offered_first, default=None)

    def first_preset(self, group: ResourceGroup | None) -> Preset | None:
        """Return the preset to begin with in a group: the first with a GPU if the group has one, else without."""
        found = self.presets_in(group)
        is_choice = len({bool(preset.fgpu) for preset in found}) > 1
        has_gpu = is_choice and Gpu.objects.filter(host__group=group, is_present=True).exists()
        return next((preset for preset in found if bool(preset.fgpu) == has_gpu), next(iter(found), None))

    def presets_in(self, group: ResourceGroup | None) -> list[Preset]:
        """Return the presets that are offered in a group."""
        return [preset for preset in self.presets if preset.group_id is None or preset.group == group]


def newest_first(image: Image) -> tuple[list[tuple[int, int, str]], str]:
    """Return the sorting key that puts the newest version first: numbers within a version count as numbers."""
    parts = re.split(r"[.\-_+ ]", image.version)
    key = [(0, -int(part), "") if _NUMBER.fullmatch(part) else (1, 0, part) for part in parts]
    return key, image.environment


def _offered_first(image: Image) -> tuple[bool, int, bool]:
    """Return the sorting key of the image to begin with: a usable default, else what is built next."""
    build = builds.build_of(image)
    if build is None or build.is_usable:
        return False, 0, not image.is_default
    return True, build.position, not image.is_default
