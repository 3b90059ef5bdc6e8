"""API of uploads: tus 1.0.0, https://tus.io/protocols/resumable-upload.

The views answer as all of the API does. Where the body of a file follows, they hand it over to `folders.transfers`, and
Django never sees it.
"""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from django.db import connections
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.http import http_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from folders.errors import FolderError
from folders.files.errors import EntryNotFoundError, FilesError
from folders.files.partial import PartialFile
from folders.models import Folder, OnConflict, Upload
from folders.responses import status_of
from folders.serializers import UploadSerializer
from folders.sharing.access import Access, require
from folders.storage.paths import files_of
from folders.transfers.handover import hand_over, has_body
from folders.transfers.incoming import ALGORITHMS, Checksum, UploadBody, UploadRefusedError
from folders.uploads import services as uploads
from resources import clock
from restapi.views import ApiView

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,creation-with-upload,termination,expiration,checksum"
BODY_TYPE: Final = "application/offset+octet-stream"
MAX_LENGTH_BYTES: Final = 2**63 - 1  # of a file, and of PostgreSQL's integers
TUS_RESUMABLE: Final = OpenApiParameter(
    "Tus-Resumable", str, OpenApiParameter.HEADER, required=True, enum=[VERSION], description="Version of tus"
)


class TusError(APIException):
    """A response with a status that tus gives the reason."""

    def __init__(self, detail: str, status: HTTPStatus) -> None:
        super().__init__(detail)
        self.status_code = status


def folder_for(request: Request, folder_id: str, needed: Access) -> Folder:
    """Return the folder; one that the caller may not even read is 404, one they may not write to 403."""
    user = user_of(request)
    folders = Folder.objects.readable_by(user).select_related("owner__policy", "project__policy", "root")
    folder = get_object_or_404(folders, pk=folder_id)
    require(user, folder, needed)
    return folder


class TusView(ApiView):
    """What the views of tus have in common: the version, which every request and response names."""

    unkept_operations = frozenset({"post"})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate the caller, then check the version. Raises TusError with 412 for another one."""
        super().initial(request, *args, **kwargs)
        if request.method not in ("GET", "OPTIONS") and request.headers.get("Tus-Resumable") != VERSION:
            raise TusError(f"This server speaks tus {VERSION}.", HTTPStatus.PRECONDITION_FAILED)

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Add the headers of tus to every response, errors included."""
        headers = {"Tus-Resumable": VERSION, "Tus-Version": VERSION, "Cache-Control": "no-store"}
        return super().default_response_headers | headers

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        """Say what this server can do."""
        headers = {"Tus-Extension": EXTENSIONS, "Tus-Checksum-Algorithm": ",".join(ALGORITHMS)}
        return Response(status=HTTPStatus.NO_CONTENT, headers=headers)


class UploadsView(TusView, ListAPIView[Upload]):
    """Uploads into a folder."""

    serializer_class = UploadSerializer
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Upload]:
        """Return the caller's uploads that are under way."""
        if getattr(self, "swagger_fake_view", False):
            return Upload.objects.none()
        under_way = Upload.objects.filter(folder=self.kwargs["folder_id"], user=user_of(self.request), finished_at=None)
        return under_way.order_by("created_at", "pk")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the caller's uploads that are under way, the oldest first."""
        folder = folder_for(request, self.kwargs["folder_id"], Access.READ)
        page = self.paginate_queryset(self.get_queryset())
        with files_of(folder) as files:
            context = {**self.get_serializer_context(), "files": files}
            return self.get_paginated_response(UploadSerializer(page, many=True, context=context).data)

    @extend_schema(
        request={BODY_TYPE: OpenApiTypes.BINARY},
        parameters=[
            TUS_RESUMABLE,
            OpenApiParameter("Upload-Length", int, OpenApiParameter.HEADER, required=True, description="Bytes"),
            OpenApiParameter(
                "Upload-Metadata",
                str,
                OpenApiParameter.HEADER,
                required=True,
                description="`path BASE64[,conflict BASE64]`: where the file appears in the folder, and what is done"
                " if the path is taken: refuse (default), replace or keep-both.",
            ),
        ],
        responses={
            201: OpenApiResponse(description="Begun; its address is in the header Location"),
            409: OpenApiResponse(description="The path is taken"),
            507: OpenApiResponse(description="The owner's quota does not suffice, or the storage is full"),
        },
    )
    def post(self, request: Request, folder_id: str) -> Response:
        """Begin an upload, by tus: Creation and Creation With Upload."""
        folder = folder_for(request, folder_id, Access.WRITE)
        length = _number(request, "Upload-Length")
        path, on_conflict = _metadata(request)
        checksum = _checksum(request)
        upload = uploads.begin(user_of(request), folder, path, length, on_conflict)
        partial = uploads.resume(upload)
        headers = _headers(upload) | {"Location": reverse("folder-upload", args=[folder.pk, upload.pk])}
        if length and not has_body(request):
            partial.close()
        else:
            _take_body(request, upload, partial, checksum, is_new=True)
        return Response(status=HTTPStatus.CREATED, headers=headers | {"Upload-Offset": "0"})


class UploadView(TusView):
    """One upload of the caller."""

    @extend_schema(exclude=True)  # OpenAPI generators make no use of HEAD
    def head(self, request: Request, folder_id: str, upload_id: str) -> Response:
        """Say how much of the file is there. Finishes an upload that is whole, if its process died before that."""
        upload = _upload(request, folder_id, upload_id)
        received = uploads.received_bytes(upload)
        if received == upload.length and not upload.finished_at:
            partial = uploads.resume(upload)
            try:
                uploads.finish(upload, partial)
            finally:
                partial.close()
        return Response(
            headers=_headers(upload) | {"Upload-Offset": str(received), "Upload-Length": str(upload.length)}
        )

    @extend_schema(
        request={BODY_TYPE: OpenApiTypes.BINARY},
        parameters=[
            TUS_RESUMABLE,
            OpenApiParameter("Upload-Offset", int, OpenApiParameter.HEADER, required=True, description="As HEAD says"),
            OpenApiParameter(
                "Upload-Checksum", str, OpenApiParameter.HEADER, description="`sha256 BASE64` of the body"
            ),
        ],
        responses={
            204: OpenApiResponse(description="Written; the header Upload-Offset says how much is there now"),
            409: OpenApiResponse(description="The offset is not where the file ends"),
            423: OpenApiResponse(description="Another request is writing"),
            460: OpenApiResponse(description="The checksum does not match; nothing was written"),
            507: OpenApiResponse(description="The owner's quota is used up, or the storage is full"),
        },
    )
    def patch(self, request: Request, folder_id: str, upload_id: str) -> Response:
        """Continue an upload: append the body to what is there."""
        upload = _upload(request, folder_id, upload_id)
        if request.content_type != BODY_TYPE:
            raise TusError(f"The Content-Type must be {BODY_TYPE}.", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        offset, checksum = _number(request, "Upload-Offset"), _checksum(request)
        if upload.finished_at:
            if offset != upload.length or has_body(request):
                raise TusError("The upload is whole.", HTTPStatus.CONFLICT)
            return Response(status=HTTPStatus.NO_CONTENT, headers=_headers(upload) | {"Upload-Offset": str(offset)})
        partial = uploads.resume(upload)
        if partial.size != offset:
            partial.close()
            raise TusError(f"The file ends at {partial.size}, not at {offset}.", HTTPStatus.CONFLICT)
        _take_body(request, upload, partial, checksum)
        return Response(status=HTTPStatus.NO_CONTENT, headers=_headers(upload))

    @extend_schema(request=None, parameters=[TUS_RESUMABLE], responses={204: None})
    def delete(self, request: Request, folder_id: str, upload_id: str) -> Response:
        """End an upload, by tus: Termination. A file that is whole stays."""
        upload = _upload(request, folder_id, upload_id)
        try:
            partial = uploads.resume(upload)
        except EntryNotFoundError:
            uploads.end(upload)
        else:
            try:
                uploads.end(upload)
            finally:
                partial.close()
        return Response(status=HTTPStatus.NO_CONTENT)


class _Handler:
    """What becomes of an upload, for `UploadBody`; called in threads outside of a request."""

    def __init__(self, upload: Upload, *, is_new: bool) -> None:
        self._upload = upload
        self._is_new = is_new

    def check(self) -> None:
        """Raise UploadRefusedError once the owner's quota is exceeded, or the rights of the user have ended."""
        with _refused():
            uploads.check(self._upload)

    def finish(self, partial: PartialFile) -> Mapping[str, str]:
        """Put the file into its place, and tell where that is."""
        with _refused():
            uploads.finish(self._upload, partial)
        return _headers(self._upload) | {"Upload-Path": quote(self._upload.path)}

    def fail(self) -> None:
        """Remove an upload of whose address the client has not heard."""
        if self._is_new:
            with suppress(FolderError, FilesError), _refused():
                uploads.end(self._upload)


@contextmanager
def _refused() -> Iterator[None]:
    """Raise errors as UploadRefusedError, and give the thread's database connection back to the pool."""
    try:
        yield
    except (FolderError, FilesError) as error:
        raise UploadRefusedError(str(error), status_of(error)) from error
    finally:
        connections.close_all()


def _take_body(
    request: Request, upload: Upload, partial: PartialFile, checksum: Checksum | None, *, is_new: bool = False
) -> None:
    handler = _Handler(upload, is_new=is_new)
    body = UploadBody(partial, upload.length, handler=handler, checksum=checksum)
    hand_over(request, body)


def _upload(request: Request, folder_id: str, upload_id: str) -> Upload:
    """Return the caller's upload. Raises NotFound, and TusError with 410 for one that has expired."""
    folder = folder_for(request, folder_id, Access.WRITE)
    upload = get_object_or_404(Upload, folder=folder, user=user_of(request), pk=upload_id)
    upload.folder = folder
    if upload.expires_at < clock.now():
        raise TusError("The upload has expired; begin it again.", HTTPStatus.GONE)
    return upload


def _headers(upload: Upload) -> dict[str, str]:
    return {"Upload-Expires": http_date(upload.expires_at.timestamp())}


def _number(request: Request, name: str) -> int:
    """Return a header that is a number of bytes. Raises ValidationError."""
    text = request.headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_LENGTH_BYTES):
        raise ValidationError({name: ["This header must be a whole number of bytes."]})
    return int(text)


def _metadata(request: Request) -> tuple[str, OnConflict]:
    """Return path and policy for conflicts from the header Upload-Metadata. Raises ValidationError."""
    pairs = dict(pair.strip().partition(" ")[::2] for pair in request.headers.get("Upload-Metadata", "").split(","))
    path = _decoded(pairs.get("path") or pairs.get("filename", ""))
    if not path:
        raise ValidationError({"path": ["Upload-Metadata must have the path of the file, in base64."]})
    try:
        return path, OnConflict(_decoded(pairs.get("conflict", "")) or OnConflict.REFUSE)
    except ValueError as error:
        raise ValidationError({"conflict": [f"This must be one of {', '.join(OnConflict.values)}."]}) from error


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value.strip(), validate=True).decode()
    except ValueError as error:
        raise ValidationError({"Upload-Metadata": ["The values must be UTF-8 in base64."]}) from error


def _checksum(request: Request) -> Checksum | None:
    """Return what the header Upload-Checksum says. Raises ValidationError."""
    if "Upload-Checksum" not in request.headers:
        return None
    algorithm, _, digest = request.headers["Upload-Checksum"].partition(" ")
    if algorithm not in ALGORITHMS:
        raise ValidationError({"Upload-Checksum": [f"The algorithm must be one of {', '.join(ALGORITHMS)}."]})
    try:
        return Checksum(algorithm, base64.b64decode(digest, validate=True))
    except ValueError as error:
        raise ValidationError({"Upload-Checksum": ["The digest must be in base64."]}) from error
