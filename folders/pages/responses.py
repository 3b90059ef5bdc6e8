"""What the pages of data folders share: the folder a request is about, and responses for htmx and without it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django_htmx.http import trigger_client_event

from accounts.requests import UserRequest
from folders.models import Folder
from folders.sharing.access import Access, access, manages
from translation.english import from_english

DONE_EVENT = "folder:done"  # static/js/dialog.js closes the dialog, says what was done, and has the page updated


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """A folder that the user may read, and what else they may do with it."""

    folder: Folder
    can_write: bool
    is_owner: bool


def open_folder(request: UserRequest, folder_id: str, *, to_write: bool = False) -> OpenedFolder:
    """Return the folder. Raises Http404 for users who may not read it, or with `to_write` may not change it."""
    readable = Folder.objects.readable_by(request.user).select_related("root", "owner", "project")
    folder = readable.with_rights_of(request.user).filter(pk=folder_id).first()
    right = access(request.user, folder) if folder else Access.NONE
    if folder is None or right < (Access.WRITE if to_write else Access.READ):
        raise Http404
    return OpenedFolder(folder, right >= Access.WRITE and folder.trashed_at is None, manages(request.user, folder))


def open_own_folder(request: UserRequest, folder_id: str) -> Folder:
    """Return the folder. Raises Http404 unless the user owns it, or manages its project."""
    opened = open_folder(request, folder_id)
    if not opened.is_owner:
        raise Http404
    return opened.folder


def render_dialog(
    request: UserRequest, part: str, context: dict[str, Any], *, title: str, status: int = 200
) -> HttpResponse:
    """Render the content of a dialog; without htmx, on a page of its own."""
    if request.htmx:
        return render(request, part, context, status=status)
    return render(request, "folders/dialog.html", context | {"part": part, "title": title}, status=status)


def done(
    request: UserRequest,
    message: str,
    url: str,
    *,
    level: str = "success",
    show: bool = False,
    undo: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """Say what was done: htmx gets an event, and with `show` the address to go to; others are redirected there.

    `undo` is the request that takes it back, as {"url": ..., "values": {...}}, which htmx is offered.
    """
    message = from_english(message)
    if request.htmx:
        more = ({"url": url} if show else {}) | ({"undo": undo} if undo else {})
        detail = {"message": message, "level": level} | more
        return trigger_client_event(HttpResponse(status=204), DONE_EVENT, detail)
    messages.add_message(request, messages.SUCCESS if level == "success" else messages.ERROR, message)
    return redirect(url)
