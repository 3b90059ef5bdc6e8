"""Pages of one folder: its directories, a file with its preview, and its trash."""

import os
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpResponse
from django.shortcuts import render

from accounts.requests import UserRequest, signed_in_page
from folders.contents import services as contents
from folders.errors import FolderError
from folders.files.entries import EntryKind, FolderEntry, Order
from folders.files.errors import EntryNotFoundError, FilesError, InvalidPathError
from folders.files.folder_files import FolderFiles
from folders.pages.previews import (
    MAX_IMAGE_BYTES,
    MAX_NOTEBOOK_BYTES,
    MAX_TEXT_PREVIEW_BYTES,
    PreviewKind,
    preview_kind,
    preview_text,
)
from folders.pages.responses import OpenedFolder, open_folder
from folders.sharing.access import Access

PAGE_SIZE: Final = 200
DEFAULT_SORT: Final = "name"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a directory's entries."""

    number: int
    total: int

    @property
    def offset(self) -> int:
        """Entries before this page."""
        return (self.number - 1) * PAGE_SIZE

    @property
    def last(self) -> int:
        """Number of the last entry on this page."""
        return min(self.offset + PAGE_SIZE, self.total)

    @property
    def previous(self) -> int | None:
        """Number of the page before."""
        return self.number - 1 if self.number > 1 else None

    @property
    def next(self) -> int | None:
        """Number of the page after."""
        return self.number + 1 if self.last < self.total else None


@signed_in_page
def browse(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show a directory of the folder; return only the changing part to htmx."""
    opened = open_folder(request, folder_id)
    path = request.GET.get("path", "")
    sort = request.GET.get("sort", DEFAULT_SORT)
    number = _page_number(request)
    order = sort.removeprefix("-")
    try:
        listing = contents.list_entries(
            request.user,
            opened.folder,
            path,
            order=Order(order) if order in set(Order) else Order.NAME,
            descending=sort.startswith("-"),
            offset=(number - 1) * PAGE_SIZE,
            limit=PAGE_SIZE,
        )
    except (FilesError, FolderError) as error:
        return show_problem(request, opened, error, path)
    context = {"listing": listing, "page": Page(number, listing.total), "sort": sort, "path": path}
    return show(request, opened, "folders/_browse.html", context | {"crumbs": crumbs(path)})


@signed_in_page
def show_file(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show a file: its facts, and what it holds if that can be shown safely."""
    opened = open_folder(request, folder_id)
    path = request.GET.get("path", "")
    try:
        with contents.opened(request.user, opened.folder, Access.READ) as files:
            entry = files.stat(path)
            preview = _preview(files, path, entry) if entry.kind == EntryKind.FILE else {}
    except (FilesError, FolderError) as error:
        return show_problem(request, opened, error, path)
    context = {"entry": entry, "path": path, "crumbs": crumbs(path), **preview}
    return show(request, opened, "folders/_file.html", context)


@signed_in_page
def trash_items(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show what was deleted from the folder."""
    opened = open_folder(request, folder_id)
    try:
        items = contents.trashed_entries(request.user, opened.folder)
    except (FilesError, FolderError) as error:
        return show_problem(request, opened, error, "")
    page = Page(_page_number(request), len(items))
    context = {"items": items[page.offset : page.last], "page": page}
    return show(request, opened, "folders/_trash.html", context)


def show(
    request: UserRequest, opened: OpenedFolder, part: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    """Render a part of the folder's page: alone for htmx, else with the page around it."""
    folder = opened.folder
    context |= {
        "folder": folder,
        "can_write": opened.can_write,
        "is_owner": opened.is_owner,
        "share_count": folder.shares.count() if opened.is_owner else 0,
        "part": part,
    }
    if request.htmx:
        return render(request, part, context)  # htmx shows no page with another status
    return render(request, "folders/folder.html", context, status=status)


def show_problem(request: UserRequest, opened: OpenedFolder, error: Exception, path: str) -> HttpResponse:
    """Render why files cannot be shown: nothing has this path, or the storage cannot be reached."""
    is_missing = isinstance(error, EntryNotFoundError | InvalidPathError)
    context = {
        "problem": str(error),
        "is_missing": is_missing,
        "path": path,
    }
    return show(request, opened, "folders/_problem.html", context, status=404 if is_missing else 503)


def crumbs(path: str) -> list[tuple[str, str]]:
    """Return names and paths of the directories above an entry, and of itself."""
    parts = path.split("/") if path else []
    return [(name, "/".join(parts[: index + 1])) for index, name in enumerate(parts)]


def _page_number(request: UserRequest) -> int:
    """Return the number of the page asked for; 1 for what is no such number."""
    number = request.GET.get("page", "")
    return max(1, int(number)) if number.isascii() and number.isdecimal() and len(number) < 7 else 1


def _preview(files: FolderFiles, path: str, entry: FolderEntry) -> dict[str, Any]:
    """Return what the page shows of a file: an image or a notebook by its address, or text."""
    kind = preview_kind(entry.name)
    if kind == PreviewKind.IMAGE and entry.length_bytes <= MAX_IMAGE_BYTES:
        return {"is_image": True}
    if kind == PreviewKind.NOTEBOOK and entry.length_bytes <= MAX_NOTEBOOK_BYTES:
        return {"is_notebook": True, "is_text": True}  # read by the browser: no content costs this process anything
    return _text_preview(files, path, entry)


def _text_preview(files: FolderFiles, path: str, entry: FolderEntry) -> dict[str, Any]:
    content = _read(files, path, MAX_TEXT_PREVIEW_BYTES)
    text = preview_text(content, is_whole=len(content) == entry.length_bytes)
    return {"text": text, "is_text": text is not None, "is_cut": len(content) < entry.length_bytes}


def _read(files: FolderFiles, path: str, limit_bytes: int) -> bytes:
    with os.fdopen(files.open_file(path), "rb") as opened:
        return opened.read(limit_bytes)
