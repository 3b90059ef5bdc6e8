"""API of the files in a folder: list, make, move, delete, restore, and edit small text files."""

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound, ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.utils.urls import remove_query_param, replace_query_param

from accounts.api import user_of
from folders.contents import services as contents
from folders.files.entries import Order
from folders.models import Folder
from folders.serializers import (
    FolderEntriesPageSerializer,
    FolderEntriesQuery,
    FolderEntrySerializer,
    FolderMoveSerializer,
    FolderPageQuery,
    FolderPathQuery,
    FolderRestoreSerializer,
    FolderTextSerializer,
    FolderTrashItemSerializer,
    FolderTrashPageSerializer,
    NewDirectorySerializer,
    NewTextSerializer,
)
from restapi.views import ApiView, valid_body

REFUSED = {
    400: OpenApiResponse(description="The path is not one in a folder"),
    404: OpenApiResponse(description="Nothing has this path, or the folder is not the caller's to see"),
    409: OpenApiResponse(description="The path is taken, or something of another kind"),
    503: OpenApiResponse(description="The folder's storage is not reachable here; the detail says where it is"),
}
CHANGE_REFUSED = {
    **REFUSED,
    403: OpenApiResponse(description="The folder is shared with the caller read-only"),
    413: OpenApiResponse(description="The owner's quota does not allow it"),
    507: OpenApiResponse(description="The storage is full"),
}


class PreconditionRequiredError(APIException):
    """A save names neither what it replaces nor that it makes a new file."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = (
        "Send If-Match with the etag that you have read, so that nobody's changes are lost, or If-None-Match: * for a "
        "new file."
    )


def folder_for(request: Request, folder_id: str) -> Folder:
    """Return the folder of this id, with what rights and quota need. Raises Http404 if the caller may not see it."""
    user = user_of(request)
    folders = (
        Folder.objects.visible_to(user).select_related("owner__policy", "project__policy", "root").with_rights_of(user)
    )
    return get_object_or_404(folders, pk=folder_id)


def _page(request: Request, asked: dict[str, Any], count: int, rows: BaseSerializer[Any], **more: Any) -> Response:
    """Return the response with one page of a list of `count`. Raises NotFound for a page behind the last."""
    number, size = asked["page"], asked["page_size"]
    if number > 1 and (number - 1) * size >= count:
        raise NotFound("Invalid page.")
    url = request.build_absolute_uri()
    following = replace_query_param(url, "page", number + 1) if number * size < count else None
    first = remove_query_param(url, "page")
    previous = None if number == 1 else first if number == 2 else replace_query_param(url, "page", number - 1)
    return Response({"count": count, "next": following, "previous": previous, **more, "results": rows.data})


class FolderEntriesView(ApiView):
    """The entries of a directory of a folder."""

    query_serializers: ClassVar = {"get": FolderEntriesQuery, "delete": FolderPathQuery}

    @extend_schema(responses={200: FolderEntriesPageSerializer, **REFUSED})
    def get(self, request: Request, folder_id: str) -> Response:
        """List a directory, directories first."""
        asked = self.query
        listing = contents.list_entries(
            user_of(request),
            folder_for(request, folder_id),
            asked["path"],
            order=Order(asked["order"].removeprefix("-")),
            descending=asked["order"].startswith("-"),
            offset=(asked["page"] - 1) * asked["page_size"],
            limit=asked["page_size"],
        )
        rows = FolderEntrySerializer(listing.entries, many=True)
        return _page(request, asked, listing.total, rows, is_complete=listing.is_complete)

    @extend_schema(request=NewDirectorySerializer, responses={201: FolderEntrySerializer, **CHANGE_REFUSED})
    def post(self, request: Request, folder_id: str) -> Response:
        """Make a directory."""
        asked = valid_body(NewDirectorySerializer, request)
        folder = folder_for(request, folder_id)
        made = contents.make_directory(user_of(request), folder, asked["path"], parents=asked["parents"])
        return Response(FolderEntrySerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={200: FolderTrashItemSerializer, **CHANGE_REFUSED})
    def delete(self, request: Request, folder_id: str) -> Response:
        """Move an entry to the folder's trash, and return it there."""
        asked = self.query
        item = contents.trash_entry(user_of(request), folder_for(request, folder_id), asked["path"])
        return Response(FolderTrashItemSerializer(item).data)


class FolderMoveView(ApiView):
    """Moving entries within a folder."""

    @extend_schema(request=FolderMoveSerializer, responses={200: FolderEntrySerializer, **CHANGE_REFUSED})
    def post(self, request: Request, folder_id: str) -> Response:
        """Move or rename an entry."""
        asked = valid_body(FolderMoveSerializer, request)
        folder = folder_for(request, folder_id)
        moved = contents.move_entry(
            user_of(request), folder, asked["path"], asked["new_path"], replace=asked["replace"]
        )
        return Response(FolderEntrySerializer(moved).data)


class FolderTrashView(ApiView):
    """The trash of a folder."""

    query_serializers: ClassVar = {"get": FolderPageQuery}

    @extend_schema(responses={200: FolderTrashPageSerializer, **REFUSED})
    def get(self, request: Request, folder_id: str) -> Response:
        """List what was deleted, the latest first."""
        asked = self.query
        items = contents.trashed_entries(user_of(request), folder_for(request, folder_id))
        start = (asked["page"] - 1) * asked["page_size"]
        rows = FolderTrashItemSerializer(items[start : start + asked["page_size"]], many=True)
        return _page(request, asked, len(items), rows)

    @extend_schema(operation_id="folders_trash_empty", responses={204: None, **CHANGE_REFUSED})
    def delete(self, request: Request, folder_id: str) -> Response:
        """Delete everything in the trash for ever."""
        contents.empty_trash(user_of(request), folder_for(request, folder_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTrashRestoreView(ApiView):
    """Restoring one item of the trash of a folder."""

    @extend_schema(request=FolderRestoreSerializer, responses={200: FolderEntrySerializer, **CHANGE_REFUSED})
    def post(self, request: Request, folder_id: str, item_id: str) -> Response:
        """Restore the item to where it was, or to another path."""
        asked = valid_body(FolderRestoreSerializer, request)
        folder = folder_for(request, folder_id)
        entry = contents.restore_entry(user_of(request), folder, item_id, asked.get("path"))
        return Response(FolderEntrySerializer(entry).data)


class FolderTrashItemView(ApiView):
    """One item of the trash of a folder."""

    @extend_schema(responses={204: None, **CHANGE_REFUSED})
    def delete(self, request: Request, folder_id: str, item_id: str) -> Response:
        """Delete the item for ever."""
        contents.delete_entry(user_of(request), folder_for(request, folder_id), item_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTextView(ApiView):
    """A small text file of a folder, to be edited."""

    query_serializers: ClassVar = {"get": FolderPathQuery, "put": FolderPathQuery}

    @extend_schema(
        responses={
            200: FolderTextSerializer,
            **REFUSED,
            413: OpenApiResponse(description="The file is larger than 1 MiB"),
            415: OpenApiResponse(description="This is not text in UTF-8"),
        }
    )
    def get(self, request: Request, folder_id: str) -> Response:
        """Return the text of a file of at most 1 MiB in UTF-8."""
        asked = self.query
        file = contents.read_text(user_of(request), folder_for(request, folder_id), asked["path"])
        return Response(FolderTextSerializer(file).data, headers={"ETag": file.etag})

    @extend_schema(
        parameters=[
            OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The etag that was read, or *"),
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description="*: make a new file"),
        ],
        request=NewTextSerializer,
        responses={
            200: FolderTextSerializer,
            **CHANGE_REFUSED,
            412: OpenApiResponse(description="The file is not what the caller has read"),
            428: OpenApiResponse(description="Neither If-Match nor If-None-Match was sent"),
        },
    )
    def put(self, request: Request, folder_id: str) -> Response:
        """Save the text of a file, at once or not at all."""
        asked = self.query
        body = valid_body(NewTextSerializer, request)
        etag, folder = _etag_to_match(request), folder_for(request, folder_id)
        file = contents.save_text(user_of(request), folder, asked["path"], body["text"], if_match=etag)
        return Response(FolderTextSerializer(file).data, headers={"ETag": file.etag})


def _etag_to_match(request: Request) -> str | None:
    """Return the etag that the file must have, "*" for any, None if there must be no file."""
    if etag := request.headers.get("If-Match"):
        if "," in etag:
            raise ParseError("If-Match must have one etag.")
        return etag.strip()
    if request.headers.get("If-None-Match", "").strip() == "*":
        return None
    raise PreconditionRequiredError
