"""Packages that a container has and its image has not, by apt, pip and conda, from the records they keep. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from posixpath import basename, dirname
from typing import Final

from hostworker.conversion.base import Change, ChangeKind

DPKG_STATUS: Final = "/var/lib/dpkg/status"
APT_STATES: Final = "/var/lib/apt/extended_states"  # which packages apt installed for others' sake
_DPKG_LIST: Final = re.compile(r"/var/lib/dpkg/info/([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9]+)?\.list")
_DIST_INFO: Final = re.compile(r"(/.+/(?:site|dist)-packages)/([A-Za-z0-9][\w.]*)-([^-/]+)\.(?:dist-info|egg-info)")
_CONDA_META: Final = re.compile(r"(/.+)/conda-meta/([^/]+)-([^-/]+)-[^-/]+\.json")
_APTS_PYTHON: Final = "/usr/lib/python3/dist-packages"  # written by apt, never by pip


class Manager(StrEnum):
    """What installs packages."""

    APT = "apt"
    PIP = "pip"
    CONDA = "conda"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Package:
    """A package; `place` is pip's folder or conda's prefix, "" for apt."""

    name: str
    version: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChanges:
    """What one manager changed, each sorted by name."""

    added: tuple[Package, ...] = ()
    updated: tuple[Package, ...] = ()
    removed: tuple[Package, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.updated or self.removed)


@dataclass(slots=True)
class Records:
    """What the managers' own files say, collected while they are read."""

    dpkg_status: str = ""
    apt_states: str = ""
    by_conda: set[str] = field(default_factory=set)  # dist-info folders that conda wrote
    owned: set[str] = field(default_factory=set)  # files of packages

    def wants(self, path: str) -> bool:
        """Return whether the file is one of theirs."""
        return (
            path in (DPKG_STATUS, APT_STATES)
            or _DPKG_LIST.fullmatch(path) is not None
            or (basename(path) in ("RECORD", "INSTALLER") and _DIST_INFO.fullmatch(dirname(path)) is not None)
        )

    def note(self, path: str, content: bytes) -> None:
        """Take in a file that is wanted."""
        text = content.decode(errors="replace")
        if path == DPKG_STATUS:
            self.dpkg_status = text
        elif path == APT_STATES:
            self.apt_states = text
        elif path.endswith(".list"):
            self.owned.update(text.splitlines())
        elif basename(path) == "INSTALLER":
            if text.strip() == "conda":
                self.by_conda.add(dirname(path))
        else:
            folder = dirname(dirname(path))
            self.owned.update(f"{folder}/{line.split(',')[0]}" for line in text.splitlines())


def package_changes(changes: Iterable[Change], records: Records) -> dict[Manager, PackageChanges]:
    """Return what each manager changed; managers that changed nothing are left out."""
    listed = list(changes)
    found = {
        Manager.APT: _apt(listed, records),
        Manager.PIP: _versioned(listed, _DIST_INFO, records.by_conda),
        Manager.CONDA: _versioned(listed, _CONDA_META, frozenset()),
    }
    return {manager: change for manager, change in found.items() if change}


def manually_installed(packages: Iterable[Package], records: Records) -> list[Package]:
    """Return the apt packages that somebody asked for, without those that came along."""
    stanzas = _stanzas(records.apt_states)
    automatic = {stanza.get("Package") for stanza in stanzas if stanza.get("Auto-Installed") == "1"}
    return [package for package in packages if package.name not in automatic]


def _apt(changes: Iterable[Change], records: Records) -> PackageChanges:
    installed = {
        stanza["Package"]: stanza.get("Version", "")
        for stanza in _stanzas(records.dpkg_status)
        if "Package" in stanza and stanza.get("Status", "").endswith(" installed")
    }
    by_kind: dict[ChangeKind, set[str]] = {kind: set() for kind in ChangeKind}
    for change in changes:
        if match := _DPKG_LIST.fullmatch(change.path):
            by_kind[change.kind].add(match[1])

    def packages(kind: ChangeKind) -> tuple[Package, ...]:
        return tuple(Package(name=name, version=installed.get(name, "")) for name in sorted(by_kind[kind]))

    return PackageChanges(
        added=packages(ChangeKind.ADDED), updated=packages(ChangeKind.MODIFIED), removed=packages(ChangeKind.DELETED)
    )


def _versioned(
    changes: Iterable[Change], pattern: re.Pattern[str], not_ours: set[str] | frozenset[str]
) -> PackageChanges:
    """Return the changes of packages whose records have name and version in their paths."""
    added: dict[tuple[str, str], Package] = {}
    removed: dict[tuple[str, str], Package] = {}
    for change in changes:
        match = pattern.fullmatch(change.path)
        if not match or match[1] == _APTS_PYTHON or change.path in not_ours:
            continue
        package = Package(place=match[1], name=match[2].replace("_", "-"), version=match[3])
        if change.kind is ChangeKind.ADDED:
            added[package.place, package.name] = package
        elif change.kind is ChangeKind.DELETED:
            removed[package.place, package.name] = package
    both = added.keys() & removed.keys()
    return PackageChanges(
        added=tuple(sorted(package for key, package in added.items() if key not in both)),
        updated=tuple(sorted(added[key] for key in both)),
        removed=tuple(sorted(package for key, package in removed.items() if key not in both)),
    )


def _stanzas(text: str) -> list[Mapping[str, str]]:
    """Return the paragraphs of a Debian control file, without continuation lines."""
    fields = re.compile(r"^([^\s:]+): (.*)$", re.MULTILINE)
    return [dict(fields.findall(paragraph)) for paragraph in text.split("\n\n")]
