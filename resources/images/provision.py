"""Make the entries of the catalogue available: build what is built here, then register."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.core.exceptions import ValidationError
from docker import DockerClient
from docker.errors import DockerException

from resources.images import builds
from resources.images.base import Report, has_image, registry_responds
from resources.images.builder import Builder, BuildOutcome, ignore_step
from resources.images.catalogue.catalog import Entry
from resources.images.catalogue.recipes import Recipe
from resources.images.registration import CatalogChange, is_registered, register_entry, row_of
from resources.registries.references import registry_of


class Provision:
    """One run over the catalogue on one engine. What builds or queues is called with `builds.exclusive` held."""

    def __init__(
        self, engine: DockerClient, folder: Path, environ: Mapping[str, str], *, force: bool, report: Report
    ) -> None:
        """Take what `Builder` takes."""
        self._engine, self._report = engine, report
        self._builder = Builder(engine, folder, environ, force=force, report=report)
        self._silent: set[str] = set()  # registries that did not respond in this run are not tried again

    def enqueue(self, entry: Entry, recipe: Recipe, position: int) -> bool:
        """Register the entry and queue its build unless it is up to date; False where it could not be registered.

        The builds of images that are not enabled wait until they are.
        """
        if not self._register(entry, enable=entry.is_enabled):
            return False
        image = row_of(entry)
        if self._builder.is_current(entry, recipe):
            builds.mark_current(image, position)
        else:
            builds.enqueue(image, position, is_usable=has_image(self._engine, entry.reference))
        return True

    def is_enabled(self, entry: Entry) -> bool:
        """Return whether the entry, which is registered, is enabled."""
        return row_of(entry).is_enabled

    def build(self, entry: Entry, recipe: Recipe) -> bool:
        """Build the entry, which is registered, recording and reporting how it goes; False when that failed."""
        build = builds.claim(row_of(entry))
        on_step = partial(builds.record_step, build) if build else ignore_step
        result = self._builder.build(entry, recipe, on_step)
        if result.outcome is BuildOutcome.FAILED:
            self._report(f"{entry.label}: FAILED after {result.seconds:.0f} s\n{result.problem}")
            if build:
                builds.fail(build, result.problem)
            return False
        self._report(f"{entry.label}: {result.outcome}, {result.seconds:.1f} s")
        if build:
            is_new = result.outcome is BuildOutcome.BUILT
            builds.finish(build, timedelta(seconds=result.seconds) if is_new else None)
        return True

    def offer(self, entry: Entry) -> bool:
        """Register an entry whose image a registry has, enabled if it responds; return whether that succeeded."""
        enable = is_registered(entry) or (entry.is_enabled and self._is_available(entry.reference))
        return self._register(entry, enable=enable)

    def _register(self, entry: Entry, *, enable: bool) -> bool:
        try:
            change = register_entry(entry, enable=enable)
        except ValidationError as error:
            self._report(f"{entry.label}: FAILED to register: {' '.join(error.messages)}")
            return False
        if change is not CatalogChange.UNCHANGED:
            how = "" if enable else ", not enabled: the launch page says how"
            self._report(f"{entry.label}: {change} as {entry.reference}{how}")
        return True

    def _is_available(self, reference: str) -> bool:
        try:
            if has_image(self._engine, reference):
                return True
        except DockerException as error:
            self._report(f"{reference}: {error}")
            return False
        registry = registry_of(reference)
        if registry in self._silent:
            return False
        self._report(f"asking {registry} for {reference}")
        if registry_responds(reference):
            return True
        self._silent.add(registry)
        return False
