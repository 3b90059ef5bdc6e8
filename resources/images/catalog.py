"""The catalogue of images as data: `images/catalog.toml` read into frozen dataclasses. Pure, but for `load`."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resources.images.catalog_apps import AppEntry, listed_apps, parse_apps
from resources.images.references import reference_problem
from resources.images.tables import refuse_rest, take
from resources.units import MIB, bytes_from, milli_fgpu_from

NAME_LENGTH: Final = 64  # of environments and versions, as in the table of images
_NAME = re.compile(r"[^\s:](?:[^:\n]*[^\s:])?")  # no colon: --only takes ENVIRONMENT:VERSION
_SUITE = re.compile(r"[a-z][a-z0-9]*")
# Pinned, and free of whatever a shell would act on: the words reach the Dockerfile's last RUN unquoted.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9][A-Za-z0-9.+_-]*")


class CatalogError(ValueError):
    """The catalogue cannot be used; the message lists every problem, one a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an image is built from images/Dockerfile."""

    suite: str  # Debian release of the base, which decides the Python version
    packages: tuple[str, ...]  # pinned pip requirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One version of an environment."""

    environment: str
    version: str
    reference: str
    description: str
    min_cpu: int  # cores
    min_memory: int  # bytes
    min_fgpu: int  # milli-fGPU
    is_default: bool  # the version offered first in its environment
    recipe: Recipe | None  # None: a registry has it
    apps: tuple[AppEntry, ...] = ()  # in the order of the launcher

    @property
    def label(self) -> str:
        """The environment and version as people write them, such as "PyTorch 2.7"."""
        return f"{self.environment} {self.version}"


def load(path: Path) -> tuple[Entry, ...]:
    """Read the catalogue file. Raise CatalogError, naming the file."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, CatalogError) as error:
        raise CatalogError(f"{path}: {error}") from None


def parse(text: str) -> tuple[Entry, ...]:
    """Return the entries in the order of the file. Raise CatalogError with every problem found."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"not valid TOML: {error}") from None
    tables = document.pop("image", [])
    apps, problems = parse_apps(document.pop("app", {}))
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise CatalogError("the catalogue is a list of [[image]] tables, [app.<name>] tables, and nothing else")
    entries: list[Entry] = []
    for number, table in enumerate(tables, start=1):
        name = f"image {number} ({table.get('environment', '?')} {table.get('version', '?')})"
        try:
            entries.append(_entry(dict(table), apps))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    problems += _clashes(entries)
    if problems:
        raise CatalogError("\n".join(problems))
    return tuple(entries)


def select(entries: Sequence[Entry], wanted: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries named by "ENVIRONMENT" or "ENVIRONMENT:VERSION" in any case; all where nothing is named.

    Raise CatalogError for a name that matches none.
    """
    if not wanted:
        return tuple(entries)
    names = {name.casefold() for name in wanted}
    known = {
        entry: {entry.environment.casefold(), f"{entry.environment}:{entry.version}".casefold()} for entry in entries
    }
    missing = sorted(names.difference(*known.values()))
    if missing:
        offered = ", ".join(f"{entry.environment}:{entry.version}" for entry in entries)
        raise CatalogError(f"no such image: {', '.join(missing)}; the catalogue has {offered}")
    return tuple(entry for entry in entries if names & known[entry])


def build_order(entries: Sequence[Entry]) -> list[tuple[Entry, Recipe]]:
    """Return the entries that are built here with their recipes: first those that are offered first."""
    ordered = sorted(entries, key=lambda entry: not entry.is_default)
    return [(entry, entry.recipe) for entry in ordered if entry.recipe]


def _entry(table: dict[str, object], apps: Mapping[str, AppEntry]) -> Entry:
    build = table.pop("build", None)
    if build is not None and not isinstance(build, dict):
        raise ValueError("build must be a table, [image.build]")
    entry = Entry(
        environment=_name(table, "environment"),
        version=_name(table, "version"),
        reference=take(table, "reference", str),
        description=take(table, "description", str, ""),
        min_cpu=take(table, "min_cpu", int, 1),
        min_memory=bytes_from(take(table, "min_memory", str, str(64 * MIB))),
        min_fgpu=milli_fgpu_from(take(table, "min_fgpu", str, "0")),
        is_default=take(table, "default", bool, False),
        recipe=None if build is None else _recipe(dict(build)),
        apps=listed_apps(take(table, "apps", list, []), apps),
    )
    refuse_rest(table)
    if problem := reference_problem(entry.reference):
        raise ValueError(problem)
    if entry.recipe and "@" in entry.reference:
        raise ValueError("an image that is built here is named by a tag, not by a digest")
    if entry.min_cpu < 1:
        raise ValueError("min_cpu must be 1 or more")
    return entry


def _recipe(table: dict[str, object]) -> Recipe:
    suite = take(table, "suite", str)
    if not _SUITE.fullmatch(suite):
        raise ValueError(f"suite {suite!r} is not the name of a Debian release, such as bookworm")
    packages: list[object] = take(table, "packages", list, [])
    for package in packages:
        if not isinstance(package, str) or not _PACKAGE.fullmatch(package):
            raise ValueError(f"package {package!r} must be pinned as name==version")
    refuse_rest(table)
    return Recipe(suite=suite, packages=tuple(str(package) for package in packages))


def _name(table: dict[str, object], key: str) -> str:
    value = take(table, key, str)
    if not _NAME.fullmatch(value) or len(value) > NAME_LENGTH:
        raise ValueError(f"{key} must have 1 to {NAME_LENGTH} characters, no colon, no space at its ends")
    return value


def _clashes(entries: Sequence[Entry]) -> list[str]:
    """Return a message for each name, reference or default that occurs more than once."""
    labels = Counter(entry.label for entry in entries)
    references = Counter(entry.reference for entry in entries)
    defaults = Counter(entry.environment for entry in entries if entry.is_default)
    return [
        *(f"{label} occurs {count} times" for label, count in labels.items() if count > 1),
        *(f"reference {name} occurs {count} times" for name, count in references.items() if count > 1),
        *(f"{name} has {count} default versions; choose one" for name, count in defaults.items() if count > 1),
    ]
