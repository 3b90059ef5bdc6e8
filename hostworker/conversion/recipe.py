"""A Dockerfile that repeats what packages tell of a container's changes. Pure."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hostworker.conversion.packages import Manager, Package, PackageChanges

LISTED_FILES: Final = 40
_WIDTH: Final = 100


def recipe(
    *,
    base: str,
    base_user: str,
    packages: Mapping[Manager, PackageChanges],
    asked_of_apt: Iterable[Package],
    own_files: Sequence[str],
    own_file_count: int,
) -> str:
    """Return the Dockerfile; files that belong to no package are listed in comments, since it cannot repeat them."""
    lines = [
        "# What this image adds to the one below, as far as packages tell. Versions are those of the session.",
        f"FROM {base}",
        "USER root",
    ]
    none = PackageChanges()
    lines += _apt(packages.get(Manager.APT, none), list(asked_of_apt))
    lines += _pip(packages.get(Manager.PIP, none))
    lines += _conda(packages.get(Manager.CONDA, none))
    if base_user:
        lines.append(f"USER {_one_line(base_user)}")
    if own_file_count:
        lines.append(f"# Not repeated: {own_file_count} changed files that belong to no package, among them")
        lines += [f"#   {_one_line(path)}" for path in own_files[:LISTED_FILES]]
    return "\n".join(lines) + "\n"


def _apt(changes: PackageChanges, asked: Sequence[Package]) -> list[str]:
    lines = []
    if asked:
        versions = ", ".join(f"{each.name} {each.version}" for each in asked)
        lines.append(f"# {_one_line(versions)}")
        names = [each.name for each in asked]
        lines.append(
            f"RUN apt-get update && apt-get install -y --no-install-recommends {_wrapped(names)} \\\n"
            "    && rm -rf /var/lib/apt/lists/*"
        )
    if changes.removed:
        lines.append(f"RUN apt-get remove -y {_wrapped([each.name for each in changes.removed])}")
    return lines


def _pip(changes: PackageChanges) -> list[str]:
    lines = []
    for place in sorted({each.place for each in (*changes.added, *changes.updated)}):
        words = [f"{each.name}=={each.version}" for each in (*changes.added, *changes.updated) if each.place == place]
        lines += [f"# in {_one_line(place)}", f"RUN pip install --no-cache-dir {_wrapped(words)}"]
    if changes.removed:
        lines.append(f"RUN pip uninstall -y {_wrapped([each.name for each in changes.removed])}")
    return lines


def _conda(changes: PackageChanges) -> list[str]:
    lines = []
    for prefix in sorted({each.place for each in (*changes.added, *changes.updated)}):
        words = [f"{each.name}={each.version}" for each in (*changes.added, *changes.updated) if each.place == prefix]
        lines.append(f"RUN conda install -y --prefix {_one_line(prefix)} {_wrapped(words)}")
    return lines


def _wrapped(words: Iterable[str]) -> str:
    """Return the words, quoted where a shell would act on one, in lines that are continued."""
    lines = [""]
    for word in sorted(words):
        quoted = shlex.quote(_one_line(word))
        if len(lines[-1]) + len(quoted) > _WIDTH:
            lines.append("")
        lines[-1] += f" {quoted}"
    return " \\\n       ".join(lines).strip()


def _one_line(text: str) -> str:
    """Return the text as one line: what containers write must not become an instruction."""
    return "".join(character if character.isprintable() else "?" for character in text)
