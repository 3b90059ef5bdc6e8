"""Files on their way from and to data folders, in pieces that are resumed after a broken connection."""

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import httpx

from gpuplatform_client.errors import ClientError
from gpuplatform_client.http.api_requests import ApiOperation

PIECE_BYTES = 16 * 2**20  # in memory while it is sent
TUS = {"Tus-Resumable": "1.0.0"}


@dataclass(frozen=True, slots=True)
class UploadState:
    """An upload as the platform knows it (tus 1.0.0). `path` is relative to the API; sizes in bytes."""

    path: str
    length: int
    offset: int = 0


def create_upload(folder_id: str, file: BinaryIO, path: str, *, overwrites: bool) -> ApiOperation[UploadState]:
    """Return the creation of the upload of `file`; `overwrites` says whether it may take the place of a file."""
    length = os.fstat(file.fileno()).st_size
    metadata = {"path": path, "conflict": "replace" if overwrites else "refuse"}
    headers = TUS | {
        "Upload-Length": str(length),
        "Upload-Metadata": ",".join(f"{name} {_encoded(value)}" for name, value in metadata.items()),
    }

    def read(response: httpx.Response) -> UploadState:
        upload_id = response.headers["Location"].rstrip("/").rpartition("/")[2]
        return UploadState(f"folders/{folder_id}/uploads/{upload_id}/", length)

    return ApiOperation("POST", f"folders/{folder_id}/uploads/", read, headers=headers)


def find_offset(upload: UploadState) -> ApiOperation[UploadState]:
    """Return the question how much has arrived."""
    return ApiOperation("HEAD", upload.path, lambda response: _at(upload, response), headers=TUS)


def append(upload: UploadState, file: BinaryIO) -> ApiOperation[UploadState]:
    """Return the request that sends the next piece. Raises ClientError where the file has become shorter meanwhile."""
    file.seek(upload.offset)
    piece = file.read(min(PIECE_BYTES, upload.length - upload.offset))  # of one that grows, what was announced
    if not piece:
        raise ClientError("The file has become shorter while it was uploaded.")
    headers = TUS | {"Upload-Offset": str(upload.offset), "Content-Type": "application/offset+octet-stream"}
    return ApiOperation("PATCH", upload.path, lambda response: _at(upload, response), headers=headers, content=piece)


class PartialDownload:
    """A download: written beside its target, and put in its place by the end of the block unless that fails."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._part = target.with_name(f".{target.name}.part")
        self._etag = ""
        self._reached = 0  # bytes, at most, that have been there
        self.is_whole = False

    def __enter__(self) -> Self:
        self._file = self._part.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if error is None:
            os.replace(self._part, self._target)
        else:
            self._part.unlink(missing_ok=True)

    @property
    def headers(self) -> dict[str, str]:
        """Of the request for what is missing (RFC 9110, 13.1.5)."""
        plain = {"Accept": "*/*", "Accept-Encoding": "identity"}
        if not self._etag:
            return plain
        return plain | {"Range": f"bytes={self._file.tell()}-", "If-Range": self._etag}

    @contextmanager
    def receiving(self, response: httpx.Response) -> Iterator[None]:
        """Take the body in the block. A connection that breaks there is no error where it has brought the file on."""
        self.begin(response)
        before = self._reached
        try:
            yield
            self.is_whole = True
        except httpx.TransportError:
            if self._reached <= before:
                raise

    def begin(self, response: httpx.Response) -> None:
        """Go on with a part of the file, or begin anew with all of it."""
        self._etag = response.headers.get("ETag", "")
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            self._file.seek(0)
            self._file.truncate()

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        self._file.write(piece)
        self._reached = max(self._reached, self._file.tell())


def _at(upload: UploadState, response: httpx.Response) -> UploadState:
    return replace(upload, offset=int(response.headers["Upload-Offset"]))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
