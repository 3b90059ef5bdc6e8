"""Launches that can be begun with one click: the last ones again, and the first environments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from accounts.models import User
from pages.launch.offer import LaunchOffer
from resources.images import builds
from resources.models import Image, Preset, ResourceGroup
from sessions.models import Session

MAX_CARDS: Final = 3
LOOKED_AT: Final = 20  # last sessions, among which those that ask for the same are one


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickStart:
    """A launch that only waits to be confirmed."""

    url: str
    image: Image
    preset: Preset | None = None
    again: Session | None = None  # what was launched before, instead of a preset


def quick_starts(user: User, groups: Sequence[ResourceGroup] | None = None) -> list[QuickStart]:
    """Return the last launches again, and the first environments with the first preset. Five queries at most.

    `groups` are the resource groups of the user, where they are known.
    """
    return list(_found(LaunchOffer(user, groups)))[:MAX_CARDS]


def _found(offer: LaunchOffer) -> Iterator[QuickStart]:
    group = offer.groups[0] if offer.groups else None
    preset = offer.first_preset(group)
    last = _last_launches(offer)
    for session in last:
        yield QuickStart(url=_url(again=session.pk), image=session.image, again=session)
    launched = {session.image for session in last}
    for _, images in offer.environments:
        image = next((each for each in images if each.is_default), images[0])
        if group and preset and builds.is_usable(image) and image not in launched:
            yield QuickStart(url=_url(image=image.reference, preset=preset.name), image=image, preset=preset)


def _last_launches(offer: LaunchOffer) -> list[Session]:
    """Return the last session of each kind that can be launched again: of an image, with the same amounts."""
    found: dict[tuple[int, ...], Session] = {}
    last = Session.objects.mains().filter(owner=offer.owner).select_related("image").order_by("-created_at")
    for session in last[:LOOKED_AT] if offer.groups else ():
        if session.image in offer.images:
            found.setdefault((session.image_id, session.cpu, session.memory, session.fgpu), session)
    return list(found.values())


def _url(**query: str) -> str:
    return f"{reverse('sessions:launch-step', args=['review'])}?{urlencode(query)}"
