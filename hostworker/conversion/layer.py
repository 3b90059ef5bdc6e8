"""Read a container's changes and write them as a layer: a tar archive by the OCI image specification.

No layer ever holds what is not saved: those paths are not even read.
"""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from posixpath import basename, dirname, join
from typing import IO, Final, Protocol, cast

from hostworker.conversion.base import GoneError, ImageEngine, SnapshotError
from hostworker.conversion.changes import How, LayerPlan, Piece

HEAD_BYTES: Final = 64 * 1024  # of each file, for the observer
WANTED_BYTES: Final = 32 * 2**20  # the most of a file that the observer wants whole
MAX_ENTRIES: Final = 2_000_000
_KINDS: Final = {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE}
_RECORDS: Final = ("SCHILY.xattr.security.capability", "SCHILY.xattr.user.")
_COPY_BYTES: Final = 1 << 20
_BUFFER_BYTES: Final = {How.ENTRY: 20 * tarfile.BLOCKSIZE, How.TREE: 1 << 18, How.REPLACED: 1 << 18}


class Observer(Protocol):
    """Is shown what is saved, while it is read."""

    def wants(self, path: str, size_bytes: int) -> bool:
        """Return whether `saw` is to get the whole file and not only its head."""

    def saw(self, path: str, size_bytes: int, content: bytes) -> None:
        """Take note of an entry; `content` is the head of a file, or all of it, and b"" for anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A written layer."""

    digest: str
    size_bytes: int
    entries: int


@dataclass(slots=True)
class _Hashed:
    """Writes to `sink`, adding up digest and size."""

    sink: IO[bytes]
    digest: "hashlib._Hash"
    size_bytes: int = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size_bytes += len(data)
        return self.sink.write(data)


class _Rest(io.RawIOBase):
    """The head of a file that was read already, and then the rest of it."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        part, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        return part


def write_layer(
    engine: ImageEngine,
    container_id: str,
    plan: LayerPlan,
    sink: IO[bytes],
    observer: Observer,
    may_go_on: Callable[[], None],
) -> Layer:
    """Write the layer to `sink`. `may_go_on` is called at each entry and may raise.

    Raises SnapshotError, OSError where the sink is full, and what `may_go_on` raises.
    """
    hashed = _Hashed(sink, hashlib.sha256())
    count = 0
    with tarfile.open(fileobj=cast(IO[bytes], hashed), mode="w|", format=tarfile.PAX_FORMAT) as layer:
        for entry, content in entries(engine, container_id, plan, observer):
            may_go_on()
            layer.addfile(entry, content)
            count += 1
    return Layer(digest=f"sha256:{hashed.digest.hexdigest()}", size_bytes=hashed.size_bytes, entries=count)


def entries(
    engine: ImageEngine, container_id: str, plan: LayerPlan, observer: Observer
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the layer's entries, parents first; each content must be read before the next is asked for."""
    count = 0
    for piece in plan.pieces:
        if piece.how is How.DELETED:
            yield _mark(piece.path), None
            continue
        try:
            with engine.read(container_id, piece.path) as stream:
                for entry, content in _entries_of(piece, stream, plan, observer):
                    yield entry, content
                    if (count := count + 1) > MAX_ENTRIES:
                        raise SnapshotError(f"More than {MAX_ENTRIES} files were changed.")
        except GoneError:
            continue  # removed since the changes were listed


def _entries_of(
    piece: Piece, stream: IO[bytes], plan: LayerPlan, observer: Observer
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    above = dirname(piece.path)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER_BYTES[piece.how]) as archive:
            for number, entry in enumerate(archive):
                if (renamed := _renamed(entry, above)) is None or plan.is_excluded(f"/{renamed.name}"):
                    continue
                yield renamed, _shown(renamed, archive, observer)
                if number == 0 and entry.isdir():
                    if piece.how is How.ENTRY:
                        return
                    if piece.how is How.REPLACED:
                        yield _mark(f"{piece.path}/.wh..opq"), None
    except tarfile.TarError as error:
        raise SnapshotError(f"{piece.path} changed while it was read; stop what writes there and try again.") from error


def _renamed(entry: tarfile.TarInfo, above: str) -> tarfile.TarInfo | None:
    """Return the entry with its name from the root on; None for what no layer holds, such as sockets and devices."""
    name = join(above, entry.name.rstrip("/")).lstrip("/")
    if entry.type not in _KINDS or ".." in name.split("/") or basename(name).startswith(".wh."):
        return None
    entry.name = name
    if entry.islnk():
        entry.linkname = join(above, entry.linkname).lstrip("/")
    entry.pax_headers = {
        key: value for key, value in entry.pax_headers.items() if any(key.startswith(record) for record in _RECORDS)
    }
    entry.uname = entry.gname = ""
    return entry


def _shown(entry: tarfile.TarInfo, archive: tarfile.TarFile, observer: Observer) -> IO[bytes] | None:
    """Show the entry to the observer and return its content, to be read from the start."""
    path = f"/{entry.name}"
    if not entry.isreg():
        observer.saw(path, 0, b"")
        return None
    content = cast(IO[bytes], archive.extractfile(entry))
    wanted = WANTED_BYTES if observer.wants(path, entry.size) else HEAD_BYTES
    head = content.read(wanted)
    observer.saw(path, entry.size, head)
    return cast(IO[bytes], _Rest(head, content))


def _mark(path: str) -> tarfile.TarInfo:
    """Return the empty file by which a layer says that the path is deleted."""
    folder, name = path.rsplit("/", 1)
    return tarfile.TarInfo(f"{folder}/.wh.{name}".lstrip("/"))


def read_only(entries: Iterable[tuple[tarfile.TarInfo, IO[bytes] | None]], may_go_on: Callable[[], None]) -> None:
    """Read all entries for their observer's sake. `may_go_on` is called at each entry and may raise."""
    for _, content in entries:
        may_go_on()
        while content and content.read(_COPY_BYTES):
            may_go_on()
