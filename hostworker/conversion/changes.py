"""Which of a container's changes an image saves, and in which pieces they are read. Pure.

An engine lists changed paths without their types. So what was added is read with all below it, while of what was
modified only the first entry tells whether it is a directory, whose other changes are in the list themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from posixpath import dirname
from typing import Final

from folders.names import HOME
from hostworker.conversion.base import Change, ChangeKind

# Homes, which belong to people; what a start makes anew; what package managers fetch again.
NOT_SAVED: Final = (
    *(HOME, "/root"),
    *("/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc", "/sys"),  # noqa: S108  # nothing is written there
    *("/var/cache/apt", "/var/lib/apt/lists", "/var/cache/dnf", "/var/cache/yum"),
)
_RESERVED: Final = ".wh."  # names that begin so mean deletions in a layer (OCI image specification)
_NESTED_LIMIT: Final = 60  # components; deeper paths are refused by no file system, but by some tools


class How(Enum):
    """In which way a path gets into the layer."""

    TREE = "with all below it"
    REPLACED = "with all below it, in place of what the image has there"
    ENTRY = "itself alone, if it is a directory"
    DELETED = "as a mark that it was deleted"


@dataclass(frozen=True, slots=True)
class Piece:
    """A path, and how it gets into the layer."""

    path: str
    how: How


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What is saved, parents first, and how many changed paths are not, by the reason's path."""

    pieces: tuple[Piece, ...]
    excluded: frozenset[str]
    left_out: dict[str, int] = field(default_factory=dict)

    def is_excluded(self, path: str) -> bool:
        """Return whether the path, or a directory above it, is not saved."""
        return excluding(path, self.excluded) is not None


def excluding(path: str, excluded: frozenset[str]) -> str | None:
    """Return the excluded path that this one is, or lies below, the nearest of several; None where there is none."""
    found = (each for each in excluded if path == each or path.startswith(f"{each}/"))
    return max(found, key=len, default=None)


def plan(changes: Iterable[Change], mounts: Iterable[str], exists: Callable[[str], bool]) -> LayerPlan:
    """Return what of the changes is saved; `exists` tells whether a path is in the container."""
    excluded = frozenset((*NOT_SAVED, *(mount.rstrip("/") for mount in mounts if mount != "/")))
    included: list[Change] = []
    left_out: dict[str, int] = {}
    for change in changes:
        if reason := excluding(change.path, excluded):
            left_out[reason] = left_out.get(reason, 0) + 1
        elif change.path.rpartition("/")[2].startswith(_RESERVED) or change.path.count("/") > _NESTED_LIMIT:
            left_out[change.path] = 1
        else:
            included.append(change)
    included.sort(key=lambda change: change.path.split("/"))
    with_exclusions = {above for path in excluded for above in _above(path)}
    return LayerPlan(
        tuple(_pieces(_without_mount_points(included, with_exclusions), with_exclusions, exists)), excluded, left_out
    )


def _without_mount_points(included: list[Change], with_exclusions: set[str]) -> list[Change]:
    """Return the changes without directories that were added only for something to be mounted below them."""
    needed = {above for change in included if change.path not in with_exclusions for above in _above(change.path)}
    return [
        change
        for change in included
        if change.kind is not ChangeKind.ADDED or change.path not in with_exclusions or change.path in needed
    ]


def _pieces(included: list[Change], with_exclusions: set[str], exists: Callable[[str], bool]) -> Iterator[Piece]:
    whole, listed = "", {""}
    for change in included:
        if whole and change.path.startswith(whole):
            continue
        how = _how(change, with_exclusions, exists)
        for path in (*reversed(list(_above(change.path))), change.path):
            if path not in listed:
                listed.add(path)
                yield Piece(path, how if path == change.path else How.ENTRY)
        if how in (How.TREE, How.REPLACED):
            whole = f"{change.path}/"


def _how(change: Change, with_exclusions: set[str], exists: Callable[[str], bool]) -> How:
    if change.kind is ChangeKind.DELETED:
        # A directory that was removed and made again is listed as deleted (overlayfs: an opaque directory).
        return How.REPLACED if exists(change.path) else How.DELETED
    if change.kind is ChangeKind.ADDED and change.path not in with_exclusions:
        return How.TREE
    return How.ENTRY


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first, without the root."""
    while (path := dirname(path)) not in ("/", ""):
        yield path
