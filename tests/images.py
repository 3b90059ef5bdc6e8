"""The images of the catalogue, for tests that run them; up to date takes a second each."""

import os
from collections.abc import Iterable
from typing import Final

import docker
from django.conf import settings

from resources.images.builder import SILENCE_SECONDS, Builder, BuildOutcome
from resources.images.catalogue import catalog
from tests.exclusive import exclusive

IMAGES: Final = settings.BASE_DIR / "images"
ENTRIES: Final = {entry.label: entry for entry in catalog.load(IMAGES / "catalog.toml")}
ENABLED: Final = [label for label, entry in ENTRIES.items() if entry.recipe and entry.is_enabled]


def ensure_images(labels: Iterable[str] = ENABLED, *, force: bool = False) -> None:
    """Build those of these images that the engine lacks, or has from other files; with `force` all, without a cache.

    Images that the catalogue does not enable are large, and for tests that are marked `long`.

    One process builds at a time; one that finds all it needs waits for no other.
    """
    said: list[str] = []
    client = docker.from_env(timeout=SILENCE_SECONDS)
    builder = Builder(client, IMAGES, os.environ, force=force, report=said.append)
    recipes = [(ENTRIES[label], recipe) for label in labels if (recipe := ENTRIES[label].recipe)]
    for entry, recipe in recipes:
        if not builder.is_current(entry, recipe):
            with exclusive("image-build"):
                result = builder.build(entry, recipe)
            assert result.outcome is not BuildOutcome.FAILED, result.problem
    client.close()
