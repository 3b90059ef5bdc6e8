"""Find out about an image, on this host's engine or else from its registry, and enter it into the table of images."""

import platform
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from docker import DockerClient
from docker.errors import DockerException
from requests import RequestException

from accounts.models import User
from resources.gpus.discovery import ARCHITECTURES
from resources.images.catalogue.apps import load_apps
from resources.images.catalogue.labels import NAME_LENGTH, ImageLabels, read_labels
from resources.images.registration import add_apps
from resources.models import Image, ImageSource
from resources.registries.client import RegistryError, describe
from resources.registries.credentials import CredentialsError
from resources.registries.references import parse_reference, reference_problem

LABELLED: Final = (
    *("description", "min_cpu", "min_memory", "min_fgpu", "min_gpu_memory", "accelerators", "architecture"),
)


class ScanError(Exception):
    """Neither the engine nor the registry tells about an image; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedImage:
    """What is known of an image, and from where."""

    labels: ImageLabels
    size_bytes: int
    architectures: tuple[str, ...]  # in which it is to be had
    is_here: bool  # on this host's engine, so that the size is that of its unpacked layers


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredImage:
    """What an administrator says of an image to be entered; what is "" or None is taken from the image itself."""

    reference: str
    environment: str = ""
    version: str = ""
    owner: User | None = None
    is_enabled: bool = True
    scanned: ScannedImage | None = field(default=None, repr=False)


def scan(reference: str) -> ScannedImage:
    """Return what this host's engine says of an image, or its registry where the image is not here.

    Raises ScanError, and ValueError for a malformed reference.
    """
    parse_reference(reference)
    if found := _on_engine(reference):
        return ScannedImage(
            labels=read_labels(found),
            size_bytes=int(found["Size"]),
            architectures=(str(found.get("Architecture") or ""),),
            is_here=True,
        )
    try:
        remote = describe(reference, ARCHITECTURES.get(platform.machine(), platform.machine()))
    except (RegistryError, CredentialsError) as error:
        raise ScanError(f"{reference} is not on this host, and {error}") from error
    return ScannedImage(
        labels=read_labels(remote.config),
        size_bytes=remote.size_bytes,
        architectures=remote.architectures,
        is_here=False,
    )


def record(image: Image, scanned: ScannedImage) -> None:
    """Enter what a scan tells of an image that is in the table: architecture, accelerators, and its size.

    What users see of it, and what it needs at least, stays as administrators have it. An image that is to be had in
    several architectures is bound to none. The size of an engine never replaces that of a registry.
    """
    image.architecture = scanned.architectures[0] if len(scanned.architectures) == 1 else ""
    image.accelerators = scanned.labels.accelerators or image.accelerators
    if image.size is None or not scanned.is_here:
        image.size = scanned.size_bytes
    image.save(update_fields=["architecture", "accelerators", "size"])


@transaction.atomic
def enter(new: EnteredImage) -> Image:
    """Enter an image into the table, or one that was removed from it again; return its row.

    Its names come from `new`, else its labels, else its reference. Apps are those of the catalogue that its labels
    name. Raises ValidationError.
    """
    if problem := reference_problem(new.reference):
        raise ValidationError({"reference": f"{problem}."})
    removed = Image.objects.filter(reference=new.reference).exclude(removed_at=None).first()
    image = removed or Image(reference=new.reference)
    image.source, image.owner, image.removed_at = ImageSource.REGISTRY.value, new.owner, None
    image.is_enabled = new.is_enabled
    repository, version = _names(new.reference)
    labels = new.scanned.labels if new.scanned else None
    image.environment = new.environment or (labels.environment if labels else "") or repository
    image.version = new.version or (labels.version if labels else "") or version
    if labels:
        labelled = {name: getattr(labels, name) for name in LABELLED}
        for name, value in labelled.items():
            if value not in (None, ""):
                setattr(image, name, value)
    image.full_clean()
    image.save()
    if new.scanned:
        record(image, new.scanned)
        apps = load_apps(settings.BASE_DIR / "images" / "catalog.toml")
        if unknown := [name for name in new.scanned.labels.apps if name not in apps]:
            raise ValidationError(f"The image names apps that the catalogue does not have: {', '.join(unknown)}.")
        add_apps(image, [apps[name] for name in new.scanned.labels.apps])
    return image


def _names(reference: str) -> tuple[str, str]:
    """Return the last part of the repository, and the tag or the beginning of the digest."""
    parts = parse_reference(reference)
    version = parts.tag or parts.digest.removeprefix("sha256:")[:12]
    return parts.repository.rpartition("/")[2][:NAME_LENGTH], version[:NAME_LENGTH]


def _on_engine(reference: str) -> Mapping[str, Any] | None:
    """Return the engine's view of an image; None where it has none, or does not answer."""
    try:
        with closing(DockerClient(base_url=settings.COMPUTE_DOCKER_URL)) as engine:
            found: Mapping[str, Any] = engine.api.inspect_image(reference)
            return found
    except (DockerException, RequestException):  # ImageNotFound among them
        return None
