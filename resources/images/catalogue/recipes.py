"""How images of the catalogue are built: the `[image.build]` tables. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from resources.images.catalogue.tables import refuse_rest, take

CUDA: Final = "cuda"
CPU: Final = "cpu"
PYTHONS: Final = {"bookworm": "3.11", "trixie": "3.13"}  # of the Debian releases for which wheels can be fetched
_SUITE = re.compile(r"[a-z][a-z0-9]*")
# Pinned, and free of whatever a shell would act on: the words reach RUN instructions of the Dockerfile unquoted.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9][A-Za-z0-9.+_-]*")
_URL = re.compile(r"https?://[A-Za-z0-9._:/+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an image is built from images/Dockerfile on one kind of host."""

    suite: str  # Debian release of the base, which decides the Python version
    packages: tuple[str, ...]  # pinned pip requirements
    wheels: tuple[str, ...] = ()  # pinned requirements that the host's pip fetches into the build context
    wheel_index: str = ""  # URL of a package index that has them, for hosts whose pip knows no other place
    mirror: str = ""  # URL of Debian's packages; "": as the base says
    pip: str = ""  # pinned; "": the Dockerfile's
    jupyter: tuple[str, ...] = ()  # pinned pip requirements; (): the Dockerfile's

    def arguments(self) -> dict[str, str]:
        """Return the build arguments of the recipe. Wheels are packages too, so that pip installs what they need."""
        optional = {"MIRROR": self.mirror and f"{self.mirror} {self.suite}", "PIP": self.pip}
        optional["JUPYTER"] = " ".join(self.jupyter)
        packages = {"PACKAGES": " ".join((*self.wheels, *self.packages))}
        return packages | {name: value for name, value in optional.items() if value}


def parse_recipe(table: dict[str, object], *, gpu: bool) -> tuple[Recipe, str]:
    """Return the recipe for hosts with or without a GPU, and the accelerator that the image can use, "" for none.

    `[image.build.cuda]` and `[image.build.cpu]` add to what the table itself says. Raise ValueError.
    """
    variants = {name: take(table, name, dict, {}) for name in (CUDA, CPU)}
    parts = {name: _parts(dict(variant)) for name, variant in variants.items()}
    chosen = CUDA if gpu else CPU
    packages, wheels, index = parts[chosen]
    suite = take(table, "suite", str)
    if not _SUITE.fullmatch(suite):
        raise ValueError(f"suite {suite!r} is not the name of a Debian release, such as bookworm")
    if any(each[1] for each in parts.values()) and suite not in PYTHONS:
        raise ValueError(f"wheels are fetched for {' and '.join(PYTHONS)}, not for {suite}")
    recipe = Recipe(
        suite=suite,
        packages=(*packages, *_requirements(table, "packages")),
        wheels=wheels,
        wheel_index=index,
        mirror=_url(table, "mirror"),
        pip=" ".join(_requirements(table, "pip")),
        jupyter=_requirements(table, "jupyter"),
    )
    refuse_rest(table)
    return recipe, CUDA if gpu and variants[CUDA] else ""


def _parts(table: dict[str, object]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return packages, wheels and the wheels' index of one kind of host."""
    parts = (_requirements(table, "packages"), _requirements(table, "wheels"), _url(table, "wheel_index"))
    refuse_rest(table)
    return parts


def _requirements(table: dict[str, object], key: str) -> tuple[str, ...]:
    requirements: list[object] = take(table, key, list, [])
    for requirement in requirements:
        if not isinstance(requirement, str) or not _PACKAGE.fullmatch(requirement):
            raise ValueError(f"{key}: {requirement!r} must be pinned as name==version")
    return tuple(str(requirement) for requirement in requirements)


def _url(table: dict[str, object], key: str) -> str:
    url = take(table, key, str, "")
    if url and not _URL.fullmatch(url):
        raise ValueError(f"{key} {url!r} is not the URL of a package index or mirror")
    return url
