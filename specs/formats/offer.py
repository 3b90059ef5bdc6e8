"""What a user may choose from, as far as the files of other systems name it in their own way."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from accounts.models import User
from resources.models import Gpu, Image, ResourceGroup

DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class SpecOffer:
    """The images, groups and GPU models of a user, each read once when used."""

    owner: User

    def fgpu_per_gpu(self, group: str | None) -> int:
        """Return how many fGPU a whole GPU is in this group; without one, or one of that name, in the first."""
        sizes = self._group_sizes
        return sizes.get(group or "", next(iter(sizes.values()), 1))

    def gpu_model(self, name: str) -> str | None:
        """Return the model of which this is a part of the name, in any case; None for none."""
        wanted = _plain(name)
        return next((model for model in self.gpu_models if wanted in _plain(model)), None)

    @cached_property
    def gpu_models(self) -> list[str]:
        """The models of GPUs in the user's groups, the shortest names first."""
        found = Gpu.objects.filter(host__group__name__in=self._group_sizes).values_list("name", flat=True).distinct()
        return sorted(found, key=lambda model: (len(model), model))

    def image(self, name: str) -> Image | None:
        """Return the image of this reference, or of "environment" or "environment:version" in any case.

        Without a version it is the one that the pages choose, else the newest; None where there is none.
        """
        environment, _, version = name.casefold().partition(":")
        matching = [
            image
            for image in self._images
            if image.environment.casefold() == environment and version in ("", image.version.casefold())
        ]
        named = (image for image in self._images if image.reference == name)
        return next(named, None) or max(matching, key=lambda image: (image.is_default, _numbers(image)), default=None)

    @cached_property
    def _images(self) -> list[Image]:
        return list(Image.objects.usable_by(self.owner))

    @cached_property
    def _group_sizes(self) -> dict[str, int]:
        groups = ResourceGroup.objects.usable_by(self.owner).order_by("name")
        return {group.name: group.fgpu_per_gpu for group in groups}


def _plain(model: str) -> str:
    return re.sub("[^a-z0-9]", "", model.casefold())


def _numbers(image: Image) -> list[int]:
    return [int(number) for number in DIGITS.findall(image.version)]
