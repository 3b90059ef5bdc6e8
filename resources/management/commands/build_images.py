"""`manage.py build_images`: build what the catalogue says and offer it to users."""

import os
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from docker import DockerClient
from docker.errors import DockerException

from resources.gpus.discovery import has_nvidia_gpu
from resources.images import builds
from resources.images.base import Report
from resources.images.builder import Builder, BuildOutcome
from resources.images.catalogue import catalog
from resources.images.catalogue.catalog import Entry
from resources.images.provision import Provision
from resources.models import Image

POLL_SECONDS: Final = 1.0


class Command(BaseCommand):
    """Builds one image after the other; a failure leaves the others alone and ends the command with status 1."""

    requires_system_checks = ()  # they take longer than a run that finds everything in place
    help = (
        "Build the session images of images/catalog.toml that are missing or outdated, and register all of them. On a "
        "host that has joined: build for this host what is enabled."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="ENVIRONMENT[:VERSION]",
            help="these alone, enabled or not; may be given several times",
        )
        parser.add_argument(
            "--gpu",
            action=BooleanOptionalAction,
            default=None,
            help="build for NVIDIA GPUs, with CUDA; without it, where this machine has an NVIDIA driver",
        )
        parser.add_argument(
            "--force", action="store_true", help="build anew, on a new base and with Debian's current packages"
        )
        parser.add_argument(
            "--folder",
            type=Path,
            default=settings.BASE_DIR / "images",
            help="where catalog.toml, Dockerfile and files/ are (default: %(default)s)",
        )

    def handle(self, *args: Any, only: list[str], force: bool, gpu: bool | None, folder: Path, **options: Any) -> None:
        """Build and register; raise CommandError after the last image when one of them failed."""
        report = self._reporter()
        has_gpu = has_nvidia_gpu() if gpu is None else gpu
        try:
            entries = catalog.select(catalog.load(folder / "catalog.toml", gpu=has_gpu), only)
            with closing(DockerClient(base_url=settings.COMPUTE_DOCKER_URL)) as engine:
                engine.ping()
                if settings.COMPUTE_HOST_KEY:  # a host that has joined, which may register nothing
                    builder = Builder(engine, folder, os.environ, force=force, report=report)
                    failed = build_for_host(builder, entries, with_disabled=bool(only), report=report)
                else:
                    with self._lock(report):
                        provision = Provision(engine, folder, os.environ, force=force, report=report)
                        failed = _provide(provision, entries, with_disabled=bool(only))
        except (catalog.CatalogError, OSError) as error:
            raise CommandError(str(error)) from None
        except DockerException as error:
            raise CommandError(f"Docker does not answer at {settings.COMPUTE_DOCKER_URL}: {error}") from None
        if failed:
            raise CommandError(f"{len(failed)} of {len(entries)} images failed: {', '.join(failed)}")

    @contextmanager
    def _lock(self, report: Report) -> Iterator[None]:
        """Hold the build lock for the block, waiting for the platform's image builder to finish an image."""
        is_first = True
        while True:
            with builds.exclusive() as is_ours:
                if is_ours:
                    yield
                    return
            if is_first:
                report("another process builds an image; waiting for it")
            is_first = False
            time.sleep(POLL_SECONDS)

    def _reporter(self) -> Report:
        started = time.monotonic()

        def report(line: str) -> None:
            self.stdout.write(f"[{time.monotonic() - started:5.1f} s] {line}")
            self.stdout.flush()

        return report


def build_for_host(builder: Builder, entries: Sequence[Entry], *, with_disabled: bool, report: Report) -> list[str]:
    """Build what is enabled, or named, on a host that has joined; its worker tells what the engine has.

    Return the labels of the entries that failed.
    """
    offered = set(Image.objects.filter(is_enabled=True, owner=None).values_list("environment", "version"))
    failed = []
    for entry, recipe in catalog.build_order(entries):
        if with_disabled or (entry.environment, entry.version) in offered:
            result = builder.build(entry, recipe)
            problem = f"\n{result.problem}" if result.problem else ""
            report(f"{entry.label}: {result.outcome}, {result.seconds:.1f} s{problem}")
            if result.outcome is BuildOutcome.FAILED:
                failed.append(entry.label)
    return failed


def _provide(provision: Provision, entries: Sequence[Entry], *, with_disabled: bool) -> list[str]:
    """Queue and build what is built here, register the rest; return the labels of the entries that failed."""
    order = catalog.build_order(entries)
    queued = [(entry, recipe) for place, (entry, recipe) in enumerate(order) if provision.enqueue(entry, recipe, place)]
    good = []
    for entry, recipe in queued:
        if not (with_disabled or provision.is_enabled(entry)) or provision.build(entry, recipe):
            good.append(entry)
    good += [entry for entry in entries if not entry.recipe and provision.offer(entry)]
    return [entry.label for entry in entries if entry not in good]
