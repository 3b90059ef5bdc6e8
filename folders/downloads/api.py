"""API of downloads: files with ranges (RFC 9110, sections 13 and 14), and several entries as a zip archive."""

import os
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar, Final

from django.http import HttpResponse, QueryDict
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, http_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.parsers import FormParser
from rest_framework.request import Request

from folders.files.downloads.archive import FolderArchive, require_archivable
from folders.files.downloads.byte_range import ByteRange, RangeNotSatisfiableError, parse_range
from folders.files.entries import entry_from
from folders.files.paths import display, parts_of
from folders.models import Folder
from folders.serializers import DownloadQuery, ZipQuery
from folders.sharing.access import Access
from folders.storage.paths import files_of
from folders.transfers.handover import hand_over
from folders.transfers.outgoing import FileBody, StreamBody
from folders.uploads.api import folder_for
from restapi.views import ApiView

# What a browser shows without running anything of it, by its first bytes; all else is saved, never shown.
IMAGES: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM....\x00\x00\x00\x00", re.DOTALL), "image/bmp"),
)
SAFETY: Final = {
    "Cache-Control": "private, no-cache",  # kept by the browser alone, which asks each time whether it is still current
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
BYTES: Final = {(200, "application/octet-stream"): OpenApiTypes.BINARY}


class DownloadView(ApiView):
    """One file."""

    query_serializers: ClassVar = {"get": DownloadQuery}

    @extend_schema(
        parameters=[
            OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range of bytes"),
        ],
        responses={
            **BYTES,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            304: OpenApiResponse(description="The caller has it already (If-None-Match, If-Modified-Since)"),
            416: OpenApiResponse(description="The file has no such range"),
        },
    )
    def get(self, request: Request, folder_id: str) -> HttpResponse:
        """Download a file, or a range of it."""
        folder = folder_for(request, folder_id, Access.READ)
        path = self.query["path"]
        with files_of(folder) as files:
            opened = files.open_file(path)
        try:
            response, part = _file_response(request, opened, parts_of(path)[-1], inline=self.query["inline"])
        except BaseException:
            os.close(opened)
            raise
        if part is None:
            os.close(opened)
        else:
            hand_over(request, FileBody(opened, part))
        return response


class ZipView(ApiView):
    """Files and directories of a folder in one archive."""

    parser_classes = (FormParser,)
    unkept_operations = frozenset({"post"})
    query_serializers: ClassVar = {"get": ZipQuery}

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, folder_id: str) -> HttpResponse:
        """Download files and directories as a zip archive, which is made while it is sent."""
        return self._archive(request, folder_id, self.query["path"])

    @extend_schema(
        request={
            "application/x-www-form-urlencoded": {
                "properties": {"path": {"type": "array", "items": {"type": "string"}}}
            }
        },
        responses={(200, "application/zip"): OpenApiTypes.BINARY},
    )
    def post(self, request: Request, folder_id: str) -> HttpResponse:
        """Do as GET does, for more paths than an address can have."""
        paths = request.data.getlist("path") if isinstance(request.data, QueryDict) else []  # {} for no body
        return self._archive(request, folder_id, paths)

    def _archive(self, request: Request, folder_id: str, paths: Sequence[str]) -> HttpResponse:
        folder = folder_for(request, folder_id, Access.READ)
        selected = paths or [""]
        files = files_of(folder)
        try:
            require_archivable(files, selected)
        except BaseException:
            files.close()
            raise
        hand_over(request, StreamBody(FolderArchive(files, selected).chunks(), files.close))
        headers = SAFETY | {"Content-Disposition": _attachment(f"{_archive_name(folder, selected)}.zip")}
        return HttpResponse(content_type="application/zip", headers=headers)


def _file_response(request: Request, opened: int, name: str, *, inline: bool) -> tuple[HttpResponse, ByteRange | None]:
    """Return the response without its body, and the part of the file that is the body, if any is."""
    status = os.fstat(opened)
    etag, modified = entry_from(name, status).etag, int(status.st_mtime)
    validators = {"ETag": etag, "Last-Modified": http_date(max(0, modified))}
    conditional = get_conditional_response(request._request, etag=etag, last_modified=modified)
    if conditional is not None:
        response = HttpResponse(status=conditional.status_code, headers=SAFETY | validators)
        return response, None
    try:
        part = parse_range(_usable_range(request, validators), status.st_size)
    except RangeNotSatisfiableError:
        headers = SAFETY | validators | {"Content-Range": f"bytes */{status.st_size}"}
        return HttpResponse(status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=headers), None
    headers = SAFETY | validators | _kind(opened, name, inline=inline) | {"Accept-Ranges": "bytes"}
    if part:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{status.st_size}"
    code = HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK
    part = part or ByteRange(0, status.st_size)
    return HttpResponse(status=code, headers=headers), part


def _usable_range(request: Request, validators: dict[str, str]) -> str | None:
    """Return the Range header unless If-Range says that it was meant for another state of the file."""
    condition = request.headers.get("If-Range")
    return request.headers.get("Range") if condition is None or condition in validators.values() else None


def _kind(opened: int, name: str, *, inline: bool) -> dict[str, str]:
    """Return type and disposition: that of a picture if it is to be shown, else that of bytes to be saved."""
    if inline:
        start = os.pread(opened, 16, 0)
        for pattern, media_type in IMAGES:
            if pattern.match(start):
                return {"Content-Type": media_type, "Content-Disposition": "inline"}
    return {"Content-Type": "application/octet-stream", "Content-Disposition": _attachment(name)}


def _attachment(name: str) -> str:
    """Return the header for a file of any name: RFC 6266 and 8187."""
    return content_disposition_header(as_attachment=True, filename=display(name)) or "attachment"


def _archive_name(folder: Folder, selected: Sequence[str]) -> str:
    """Return what the archive is called: after the one directory that is in it, or after the folder."""
    return (selected[0].rpartition("/")[2] if len(selected) == 1 else "") or folder.name
