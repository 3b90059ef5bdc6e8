"""Names, paths and bytes of files: in data folders, over SFTP, in uploads and in archives for download."""

import asyncio
import base64
import io
import json
import os
import posixpath
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from rest_framework.exceptions import ValidationError

from folders.files.downloads.archive import NOTE_NAME, FolderArchive, safe_name
from folders.files.downloads.byte_range import RangeNotSatisfiableError, parse_range
from folders.files.errors import FilesError
from folders.files.folder_files import FolderFiles, make_layout
from folders.files.partial import PartialFile
from folders.files.paths import display, is_addressable, new_parts_of
from folders.mount_paths import PARENTS, absolute_path, path_error
from folders.names import folder_name_error
from folders.pages.previews import preview_kind, preview_text
from folders.transfers.handover import ClientGoneError
from folders.transfers.incoming import ALGORITHMS, Checksum, UploadBody
from folders.uploads.api import MAX_LENGTH_BYTES, _checksum, _metadata, _number
from sshserver.data_folders import _split, normal_path

SECRET: Final = "outside"  # beside the folder, which nothing may reach


@contextmanager
def _folder() -> Iterator[tuple[FolderFiles, Path]]:
    """Lend a new folder with a file, a link out of it, and something beside it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as above:
        place = Path(above, "folder")
        place.mkdir()
        Path(above, SECRET).write_text(SECRET)
        opened = os.open(place, os.O_PATH)
        make_layout(opened)
        (place / "files" / "a.txt").write_text("inside")
        (place / "files" / "out").symlink_to("../..")
        with FolderFiles(opened) as files:
            yield files, place
        assert sorted(os.listdir(above)) == ["folder", SECRET]
        assert Path(above, SECRET).read_text() == SECRET


def _name(data: bytes) -> str:
    """Return the text of a path, as JSON and the file system can carry it."""
    return data.decode(errors="surrogateescape")


def entries(data: bytes) -> None:
    """Whatever paths are named, each operation on a folder works in it, or is refused by FilesError."""
    first, _, second = _name(data).partition("\n")
    with _folder() as (files, _place):
        for operation in (
            lambda: files.mkdir(first, parents=True),
            lambda: files.write_text(second, "x", if_match=None),
            lambda: files.move("a.txt", first),
            lambda: files.move(first, second, replace=True),
            lambda: files.list(first),
            lambda: files.read_text(second),
            lambda: [each.path for each in files.walk(first)],
            lambda: files.trash.put(first, datetime.now(UTC)),
        ):
            with suppress(FilesError):
                operation()
        shown = files.list().entries
        assert all("/" not in each.name and each.name not in ("", ".", "..") for each in shown)
        display(first).encode()


def paths(data: bytes) -> None:
    """A path is one below its folder, for uploads, SFTP and mounts alike, or refused."""
    text = _name(data)
    with suppress(FilesError):
        assert posixpath.normpath("/".join(new_parts_of(text))) == text
        assert is_addressable(text) or "\ufffd" in display(text)
    normal = normal_path(text)
    assert normal.startswith("/")
    assert ".." not in normal.split("/")
    with suppress(FilesError):
        folder, inner = _split(text)
        assert "/" not in folder
        assert ".." not in inner.split("/")
    mounted = absolute_path(text, "name")
    if path_error(mounted) is None:
        assert posixpath.normpath(mounted) == mounted
        assert mounted.startswith(tuple(f"{parent}/" for parent in PARENTS))
    if not folder_name_error(text):
        assert path_error(absolute_path("", text)) is None


def archive(data: bytes) -> None:
    """Whatever files are called, their archive has names below one directory, each once, and all bytes."""
    with _folder() as (files, place):
        inside = os.path.join(os.path.realpath(os.fsencode(place)), b"files", b"")
        for at, name in enumerate(data.split(b"\n")[:20]):
            with suppress(OSError, ValueError):
                path = os.path.realpath(inside + name[:200])
                if not path.startswith(inside):
                    continue
                if at % 3 == 2:
                    os.mkdir(path)
                else:
                    Path(os.fsdecode(path)).write_bytes(name)
        selected = [each.name for each in files.list().entries if each.is_addressable]
        content = b"".join(FolderArchive(files, selected or [""]).chunks())
        with zipfile.ZipFile(io.BytesIO(content)) as made:
            names = made.namelist()
            assert made.testzip() is None
        assert len({each.rstrip("/").casefold() for each in names}) == len(names)
        for each in names:
            parts = each.rstrip("/").split("/")
            assert all(part == safe_name(part) and part not in ("", ".", "..") for part in parts if part != NOTE_NAME)


def upload_headers(data: bytes) -> None:
    """The headers by which an upload begins or goes on are read within bounds, or refused by ValidationError."""
    length, metadata, checksum, *_ = [*data.decode("latin-1").split("\n"), "", "", ""]
    headers: dict[str, str] = {"Upload-Length": length, "Upload-Metadata": metadata, "Upload-Checksum": checksum}
    request: Any = SimpleNamespace(headers=headers)
    with suppress(ValidationError):
        assert 0 <= _number(request, "Upload-Length") <= MAX_LENGTH_BYTES
    with suppress(ValidationError):
        path, conflict = _metadata(request)
        path.encode()
        conflict.encode()
    with suppress(ValidationError):
        found = _checksum(request)
        assert found is None or found.algorithm in ALGORITHMS
    named = base64.b64encode(data).decode()
    with suppress(ValidationError):
        path, _conflict = _metadata(SimpleNamespace(headers={"Upload-Metadata": f"path {named}"}))  # type: ignore[arg-type]
        assert path.encode() == data


class _Handler:
    """What becomes of an upload: notes it."""

    def __init__(self) -> None:
        self.is_finished = False

    def check(self) -> None:
        """Allow it."""

    def finish(self, partial: PartialFile) -> dict[str, str]:
        """Note it."""
        self.is_finished = True
        return {}

    def fail(self) -> None:
        """Do nothing."""


def upload_chunks(data: bytes) -> None:
    """An upload has the bytes that came, never more than were announced, and none where their checksum is wrong."""
    if len(data) < 2:
        return
    length, size, body = data[0], max(1, data[1] % 16), data[2:]
    sent = [body[at : at + size] for at in range(0, len(body), size)]
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in sent]
    messages.append({"type": "http.disconnect"} if data[1] > 127 else {"type": "http.request", "body": b""})
    checksum = Checksum("md5", b"wrong") if data[1] & 64 else None

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    with _folder() as (files, _place):
        os.close(files.staging.open("upload", create=True))
        partial, handler = PartialFile(files.staging, "upload"), _Handler()
        upload = UploadBody(partial, length, handler=handler, checksum=checksum)
        with suppress(ClientGoneError):
            is_refused = bool(asyncio.run(upload.take(receive)).status)
            assert handler.is_finished == (not is_refused and partial.size == length)
        upload.close()
        with open(files.staging.open("upload"), "rb") as file:
            kept = file.read()
        assert len(kept) <= length
        assert body.startswith(kept)
        assert not (checksum and kept)


def byte_range(data: bytes) -> None:
    """A range lies within the file, or the whole file is sent."""
    with suppress(RangeNotSatisfiableError):
        found = parse_range(data.decode("latin-1"), 1000)
        assert found is None or 0 <= found.start < found.end <= 1000


def preview(data: bytes) -> None:
    """A file is shown as text that can be sent, or not at all."""
    preview_kind(_name(data))
    for is_whole in (False, True):
        text = preview_text(data, is_whole=is_whole)
        json.dumps(text)
        assert text is None or data.startswith(text.encode())
