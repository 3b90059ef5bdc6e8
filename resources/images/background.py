"""What the image builder does in the background: queue what the catalogue says, and build the next in the queue."""

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

from docker import DockerClient

from resources.gpus.discovery import has_nvidia_gpu
from resources.images import builds
from resources.images.base import Report
from resources.images.catalogue import catalog
from resources.images.catalogue.catalog import CatalogError, Entry
from resources.images.provision import Provision
from resources.models import ImageBuild

logger = logging.getLogger(__name__)


def enqueue_catalog(
    engine: DockerClient, folder: Path, environ: Mapping[str, str], *, with_registries: bool, report: Report
) -> None:
    """Register the images that are built here and queue those that are missing or outdated, failed ones included.

    With `with_registries` the images of registries are registered too, which waits seconds for each that is silent.
    Nothing is queued while another process builds: it has done so. Raises CatalogError, OSError and DockerException.
    """
    entries = _load(folder)
    provision = Provision(engine, folder, environ, force=False, report=report)
    with builds.exclusive() as is_ours:
        if is_ours:
            for position, (entry, recipe) in enumerate(catalog.build_order(entries)):
                provision.enqueue(entry, recipe, position)
    if with_registries:
        for entry in entries:
            if not entry.recipe:
                provision.offer(entry)


def build_next(engine: DockerClient, folder: Path, environ: Mapping[str, str], report: Report) -> bool:
    """Build the first image of the queue; False where there is none, or another process builds."""
    with builds.exclusive() as is_ours:
        build = builds.claim() if is_ours else None
        if build is None:
            return False
        try:
            _build(build, Provision(engine, folder, environ, force=False, report=report), folder)
        except Exception:  # whatever it is must neither end the platform nor be tried again and again
            logger.exception("%s", build)
            builds.fail(build, traceback.format_exc())
        return True


def _load(folder: Path) -> tuple[Entry, ...]:
    """Read the catalogue for this machine: with CUDA where it has an NVIDIA driver."""
    return catalog.load(folder / "catalog.toml", gpu=has_nvidia_gpu())


def _build(build: ImageBuild, provision: Provision, folder: Path) -> None:
    """Build from the catalogue as it is now, which an administrator may have corrected."""
    try:
        entries = catalog.build_order(_load(folder))
    except CatalogError as error:
        builds.fail(build, str(error))
        return
    image = build.image
    for entry, recipe in entries:
        if (entry.environment, entry.version) == (image.environment, image.version):
            provision.build(entry, recipe)
            return
    builds.fail(build, f"{image} is no longer among the images of {folder / 'catalog.toml'} that are built here")
