"""The catalogue of images as data: `images/catalog.toml` read into frozen dataclasses. Pure, but for `load`."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resources.amounts.units import MIB, bytes_from, milli_fgpu_from
from resources.images.catalogue.apps import AppEntry, listed_apps, parse_apps
from resources.images.catalogue.recipes import Recipe, parse_recipe
from resources.images.catalogue.tables import refuse_rest, take
from resources.registries.references import reference_problem

NAME_LENGTH: Final = 64  # of environments and versions, as in the table of images
_NAME = re.compile(r"[^\s:](?:[^:\n]*[^\s:])?")  # no colon: --only takes ENVIRONMENT:VERSION


class CatalogError(ValueError):
    """The catalogue cannot be used; the message lists every problem, one a line."""


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
    min_gpu_memory: int = 0  # bytes that a session gets on one GPU
    is_default: bool  # the version offered first in its environment
    recipe: Recipe | None  # None: a registry has it
    apps: tuple[AppEntry, ...] = ()  # in the order of the launcher
    is_enabled: bool = True  # at first; from then on administrators decide
    enable_hint: str = ""  # how an administrator makes it usable, for one that is not enabled at first
    accelerators: str = ""  # what it can use, such as "cuda"
    architecture: str = ""  # of the CPUs that can run it, such as "amd64"; "": every one

    @property
    def label(self) -> str:
        """The environment and version as people write them, such as "PyTorch 2.7"."""
        return f"{self.environment} {self.version}"


def load(path: Path, *, gpu: bool = False) -> tuple[Entry, ...]:
    """Read the catalogue file for hosts with or without an NVIDIA GPU. Raise CatalogError, naming the file."""
    try:
        return parse(path.read_text(encoding="utf-8"), gpu=gpu)
    except (OSError, CatalogError) as error:
        raise CatalogError(f"{path}: {error}") from None


def parse(text: str, *, gpu: bool = False) -> tuple[Entry, ...]:
    """Return the entries in the order of the file, for GPUs or not. Raise CatalogError with every problem found."""
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
            entries.append(_entry(dict(table), apps, gpu=gpu))
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


def _entry(table: dict[str, object], apps: Mapping[str, AppEntry], *, gpu: bool) -> Entry:
    build = table.pop("build", None)
    if build is not None and not isinstance(build, dict):
        raise ValueError("build must be a table, [image.build]")
    recipe, accelerator = (None, "") if build is None else parse_recipe(dict(build), gpu=gpu)
    entry = Entry(
        environment=_name(table, "environment"),
        version=_name(table, "version"),
        reference=take(table, "reference", str),
        description=take(table, "description", str, ""),
        min_cpu=take(table, "min_cpu", int, 1),
        min_memory=bytes_from(take(table, "min_memory", str, str(64 * MIB))),
        min_fgpu=milli_fgpu_from(take(table, "min_fgpu", str, "0")),
        min_gpu_memory=bytes_from(take(table, "min_gpu_memory", str, "0")),
        is_default=take(table, "default", bool, False),
        recipe=recipe,
        apps=listed_apps(take(table, "apps", list, []), apps),
        is_enabled=take(table, "enabled", bool, True),
        enable_hint=take(table, "enable_hint", str, "").strip(),
        accelerators=take(table, "accelerators", str, accelerator),
        architecture=take(table, "architecture", str, ""),
    )
    refuse_rest(table)
    if problem := reference_problem(entry.reference):
        raise ValueError(problem)
    _require_consistent(entry)
    return entry


def _require_consistent(entry: Entry) -> None:
    """Raise ValueError where the values of an entry contradict each other."""
    if entry.recipe and "@" in entry.reference:
        raise ValueError("an image that is built here is named by a tag, not by a digest")
    if entry.min_cpu < 1:
        raise ValueError("min_cpu must be 1 or more")
    if not entry.is_enabled and not entry.enable_hint:
        raise ValueError("an image that is not enabled needs an enable_hint for administrators")


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
