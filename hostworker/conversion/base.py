"""What conversions need of a container engine, as a protocol; the engine's exceptions stop behind it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any, Final, Protocol

CONVERSION_LABEL: Final = "gpuplatform.conversion"  # of an image: the id of the conversion that made it
REFERENCE_LABEL: Final = "gpuplatform.reference"  # and its full name then, since images on top of it inherit both


class SnapshotError(Exception):
    """The container cannot be saved, or the image not be kept; the message can be shown to the session's owner."""


class GoneError(SnapshotError):
    """The container, or the path in it, does not exist."""


class ChangeKind(IntEnum):
    """How a path of a container differs from its image, numbered as in Docker's API."""

    MODIFIED = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A path of the container's writable layer, absolute."""

    path: str
    kind: ChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainer:
    """A session's container that runs; `mounts` are the paths in it at which something is mounted."""

    id: str
    image_id: str
    mounts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """The image on which a container runs, as far as an image on top of it repeats it."""

    config: Mapping[str, Any]
    layers: tuple[str, ...]  # digests of the uncompressed layers, the lowest first
    architecture: str
    os: str
    variant: str = ""


class ImageEngine(Protocol):
    """The part of a container engine that makes images of one installation's containers on one host.

    Every method may raise SnapshotError, and EngineUnreachableError of the runtime.
    """

    def running(self, session: str, attempt: int) -> RunningContainer:
        """Return the session's container. Raises GoneError where it does not run."""

    def changes(self, container_id: str) -> list[Change]:
        """Return every path that differs from the image, in no order."""

    def exists(self, container_id: str, path: str) -> bool:
        """Return whether the container has something at the path; symbolic links are not followed at its end."""

    def read(self, container_id: str, path: str) -> AbstractContextManager[IO[bytes]]:
        """Return the tar archive of the path and all below it; names begin with its last part. Raises GoneError."""

    def base(self, image_id: str) -> BaseImage:
        """Return what an image on top of this one repeats."""

    def load(self, archive: Iterable[bytes]) -> None:
        """Take in an image archive as `docker save` writes it; layers that the engine has may be left out."""

    def size(self, reference: str) -> int:
        """Return the bytes of all layers of the image. Raises GoneError."""

    def push(self, reference: str, login: Mapping[str, str], on_progress: Callable[[str], None]) -> str:
        """Push the image with this login, {} for none, and return the digest of its manifest."""

    def untag(self, reference: str) -> None:
        """Remove the tag, and the layers that nothing else uses; a missing one is success."""

    def made_here(self) -> dict[str, str]:
        """Return the conversions of this installation's images on the engine, by reference."""
