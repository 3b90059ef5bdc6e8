"""Enter the catalogue's images into the table that users choose from; any other comes by the administration."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from resources.images.catalogue.apps import AppEntry
from resources.images.catalogue.catalog import Entry
from resources.models import App, Image, ImageSource
from resources.registries.references import reference_problem


class CatalogChange(StrEnum):
    """What registering an entry of the catalogue did."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@transaction.atomic
def register_entry(entry: Entry, *, enable: bool = True) -> CatalogChange:
    """Bring the row of a catalogue's entry up to date; a second call changes nothing.

    The catalogue decides names, reference, description, minimums and what the image runs on. Administrators decide the
    rest: `enable` and the default apply to a new row alone, and no default is set where the environment has one. The
    entry's apps are entered for an image that has none; from then on they are the administrators' too. Raises
    ValidationError.
    """
    fields: dict[str, str | int] = {
        "environment": entry.environment,
        "version": entry.version,
        "reference": entry.reference,
        "description": entry.description,
        "min_cpu": entry.min_cpu,
        "min_memory": entry.min_memory,
        "min_fgpu": entry.min_fgpu,
        "min_gpu_memory": entry.min_gpu_memory,
        "enable_hint": entry.enable_hint,
        "source": (ImageSource.CATALOG if entry.recipe else ImageSource.REGISTRY).value,
    }
    fields |= {name: value for name in ("accelerators", "architecture") if (value := getattr(entry, name))}
    row = _rows(entry).first()
    if row is None:
        has_default = Image.objects.filter(environment=entry.environment, is_default=True).exists()
        row = _save(Image(is_enabled=enable, is_default=entry.is_default and not has_default), fields)
        add_apps(row, entry.apps)
        return CatalogChange.ADDED
    has_changed = any(getattr(row, name) != value for name, value in fields.items())
    if has_changed:
        _save(row, fields)
    return CatalogChange.UPDATED if add_apps(row, entry.apps) or has_changed else CatalogChange.UNCHANGED


def is_registered(entry: Entry) -> bool:
    """Return whether the entry's version of its environment is registered, under any reference."""
    return _rows(entry).exists()


def row_of(entry: Entry) -> Image:
    """Return the row of an entry that is registered."""
    return _rows(entry).get()


def _rows(entry: Entry) -> QuerySet[Image]:
    """Return the entry's row, if there is one; a user's own image of the same name is another."""
    return Image.objects.filter(environment=entry.environment, version=entry.version, owner=None)


def add_apps(image: Image, apps: Sequence[AppEntry]) -> bool:
    """Give an image without apps these; return whether any were added."""
    if not apps or image.apps.exists():
        return False
    for position, app in enumerate(apps):
        row = App(image=image, position=position, **asdict(app))
        row.full_clean()
        row.save()
    return True


def _save(image: Image, fields: Mapping[str, str | int]) -> Image:
    for name, value in fields.items():
        setattr(image, name, value)
    if problem := reference_problem(image.reference):
        raise ValidationError({"reference": problem})
    image.full_clean()
    image.save()
    return image
