"""Which image a user means, by its name or by environment and version, and whether the user may launch it.

Of an image that a user may not use, nothing is told: the message is that for a name that nothing has.
"""

import hashlib
from typing import Final

from django.db.models import Q, QuerySet

from accounts.models import User
from resources.images import builds
from resources.models import Image, ImageSource
from resources.registries.credentials import push_target
from resources.registries.references import familiar_reference, parse_reference, reference_problem, spellings
from sessions.errors import RejectedError

UNKNOWN: Final = "There is no image of this name that you may use. Write its full name, with its tag."
MAX_UNLISTED: Final = 50  # images that one user has named
NAME_LENGTH: Final = 64  # of environments and versions
RESERVED: Final = "gpuplatform/"  # images that the platform builds: no registry is asked for these


def find_by_name(owner: User, name: str) -> Image:
    """Return the image of this full name that `owner` may name.

    Where the owner's policy allows it, that is any name; the row is then new, and stored when a session is submitted.
    Raises RejectedError at `image`. Two queries.
    """
    name = name.strip()
    if problem := reference_problem(name):
        raise RejectedError({"image": f"{problem}."})
    nameable = _nameable(owner).filter(reference__in=spellings(name))
    if image := nameable.order_by("source", "pk").first():
        return image
    if not owner.policy.allow_unlisted_images or _is_reserved(name):
        raise RejectedError({"image": UNKNOWN})
    return _unlisted(owner, familiar_reference(name))


def find_version(owner: User, environment: str, version: str) -> Image:
    """Return the version of an environment that `owner` may name, everybody's before their own. Raise RejectedError."""
    images = _nameable(owner).filter(environment=environment, version=version)
    if image := images.order_by("owner").last() if images.count() > 1 else images.first():
        return image
    raise RejectedError({"version": f"There is no version {version!r} of {environment!r}."})


def refusal(owner: User, image: Image) -> str | None:
    """Return why `owner` may not launch the image now, or None."""
    if image.owner_id not in (None, owner.pk):
        return UNKNOWN
    if image.source == ImageSource.UNLISTED and not owner.policy.allow_unlisted_images:
        return "Your policy allows only images that an administrator has registered."
    if not image.is_enabled:
        return f"{image} is not offered at present."
    return builds.refusal(image)


def stored(image: Image) -> Image:
    """Return the image with its row, storing one that its owner has just named.

    Call it in the transaction that has locked the owner. Raises RejectedError where the owner has named too many.
    """
    if image.pk is not None:
        return image
    named = Image.objects.filter(owner=image.owner, source=ImageSource.UNLISTED)
    if found := named.filter(reference=image.reference).first():
        return found
    if named.count() >= MAX_UNLISTED:
        text = f"You have named {MAX_UNLISTED} images already. Ask an administrator to remove some."
        raise RejectedError({"image": text})
    image.save()
    return image


def is_built(name: str) -> bool:
    """Return whether an image of this name is built by the platform on the hosts, and never pulled."""
    return familiar_reference(name).startswith(RESERVED)


def _nameable(owner: User) -> QuerySet[Image]:
    """Return the images that `owner` may name; those that are disabled are refused when launched."""
    return Image.objects.filter(Q(owner=None) | Q(owner=owner), removed_at=None).select_related("build")


def _is_reserved(name: str) -> bool:
    """Return whether images of this name come from the platform alone: what it builds, and what sessions are made into.

    Whether such an image exists makes no difference.
    """
    target = push_target()
    return is_built(name) or (target is not None and parse_reference(name).registry == target.address)


def _unlisted(owner: User, reference: str) -> Image:
    """Return a new row, not stored, for an image that only `owner` has named."""
    repository, _, version = reference.partition("@") if "@" in reference else reference.rpartition(":")
    if len(repository) > NAME_LENGTH:
        digest = hashlib.sha256(repository.encode()).hexdigest()[:8]
        repository = f"{repository[: NAME_LENGTH - 9]}~{digest}"
    if len(version) > NAME_LENGTH:
        version = f"{version[: NAME_LENGTH - 9]}~{hashlib.sha256(version.encode()).hexdigest()[:8]}"
    return Image(
        environment=repository,
        version=version,
        reference=reference,
        description="Named by its full name",
        owner=owner,
        source=ImageSource.UNLISTED.value,
    )
