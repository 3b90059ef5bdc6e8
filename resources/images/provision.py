"""Make the entries of the catalogue available: build what is built here, then register."""

from collections.abc import Mapping
from pathlib import Path

from django.core.exceptions import ValidationError
from docker import DockerClient
from docker.errors import DockerException

from resources.images.base import Report, has_image, registry_answers
from resources.images.builder import Builder, BuildOutcome
from resources.images.catalog import Entry, Recipe, registry_of
from resources.images.registration import CatalogChange, is_registered, register_entry


class Provision:
    """One run over the catalogue on one engine."""

    def __init__(
        self, engine: DockerClient, folder: Path, environ: Mapping[str, str], *, force: bool, report: Report
    ) -> None:
        """Take what `Builder` takes."""
        self._engine, self._report = engine, report
        self._builder = Builder(engine, folder, environ, force=force, report=report)
        self._silent: set[str] = set()  # registries that did not answer in this run are not waited for again

    def offer(self, entry: Entry) -> bool:
        """Have the entry built and registered, reporting how it goes; False when that failed."""
        if entry.recipe:
            return self._build(entry, entry.recipe) and self._register(entry, enable=True)
        enable = is_registered(entry) or self._is_available(entry.reference)
        return self._register(entry, enable=enable)

    def _build(self, entry: Entry, recipe: Recipe) -> bool:
        result = self._builder.build(entry, recipe)
        if result.outcome is BuildOutcome.FAILED:
            self._report(f"{entry.label}: FAILED after {result.seconds:.0f} s\n{result.problem}")
            return False
        self._report(f"{entry.label}: {result.outcome}, {result.seconds:.1f} s")
        return True

    def _register(self, entry: Entry, *, enable: bool) -> bool:
        try:
            change = register_entry(entry, enable=enable)
        except ValidationError as error:
            self._report(f"{entry.label}: FAILED to register: {' '.join(error.messages)}")
            return False
        if change is not CatalogChange.UNCHANGED:
            self._report(f"{entry.label}: {change} as {entry.reference}{'' if enable else ', disabled'}")
        if not enable:
            self._report(f"{entry.label}: neither on this host nor to be pulled; enable it on the admin pages later")
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
        if registry_answers(reference):
            return True
        self._silent.add(registry)
        return False
