"""Actions on entries of a folder: make, rename, move, delete to the trash, restore, delete for ever."""

import posixpath
from typing import Any, Final

from django.http import HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from accounts.requests import UserRequest, signed_in_act, signed_in_form
from folders.contents import services as contents
from folders.errors import FolderError
from folders.files.entries import EntryKind
from folders.files.errors import FilesError
from folders.models import Folder
from folders.pages.browser_views import crumbs
from folders.pages.outcomes import each
from folders.pages.responses import done, open_folder, render_dialog

MAX_SHOWN_DIRECTORIES: Final = 500


@signed_in_form
def new_directory(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask for a name, or make a directory; with `parents`, those above it too, and one that exists is fine."""
    return _new_entry(request, folder_id, is_directory=True)


@signed_in_form
def new_file(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask for a name, or make an empty text file and open it in the editor."""
    return _new_entry(request, folder_id, is_directory=False)


def _new_entry(request: UserRequest, folder_id: str, *, is_directory: bool) -> HttpResponse:
    folder = open_folder(request, folder_id, to_write=True).folder
    directory, name = _given(request, "path"), _given(request, "name").strip()
    problem = ""
    if request.method == "POST":
        try:
            path = posixpath.join(directory, _required(name))
            if is_directory:
                contents.make_directory(request.user, folder, path, parents="parents" in request.POST)
                return done(request, f"Made the directory {name}.", address("browse", folder, directory))
            contents.save_text(request.user, folder, path, "", if_match=None)
            return done(request, f"Made the file {name}.", address("edit", folder, path), show=True)
        except (FilesError, FolderError, ValueError) as error:
            problem = str(error)
    context = {"folder": folder, "path": directory, "name": name, "problem": problem, "is_directory": is_directory}
    title = _("New directory") if is_directory else _("New text file")
    return render_dialog(request, "folders/_new_entry.html", context, title=title, status=422 if problem else 200)


@signed_in_form
def rename(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask for another name of an entry (`path`, or the one chosen), or rename it."""
    folder = open_folder(request, folder_id, to_write=True).folder
    path = _given(request, "path")
    old_name = posixpath.basename(path)
    name = _given(request, "name") or old_name
    problem = ""
    if request.method == "POST":
        try:
            target = posixpath.join(posixpath.dirname(path), _required(name))
            contents.move_entry(request.user, folder, path, target)
        except (FilesError, FolderError, ValueError) as error:
            problem = str(error)
        else:
            is_page = "from_file" in request.POST  # the page of the file itself, whose address changes
            target_page = address("file", folder, target) if is_page else address("browse", folder, _parent(path))
            return done(request, f"Renamed {old_name} to {name}.", target_page, show=is_page)
    context = {"folder": folder, "path": path, "old_name": old_name, "name": name, "problem": problem}
    context["from_file"] = "from_file" in request.GET or "from_file" in request.POST
    return render_dialog(
        request,
        "folders/_rename_entry.html",
        context,
        title=_("Rename %(name)s") % {"name": old_name},
        status=422 if problem else 200,
    )


@signed_in_act
def move(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show the directories to which the chosen entries can be moved, the one to `open` first; or move them `to` one."""
    folder = open_folder(request, folder_id, to_write=True).folder
    paths = request.POST.getlist("path")
    target = request.POST.get("open", request.POST.get("to", request.POST.get("directory", "")))
    if "to" in request.POST and "open" not in request.POST:
        outcome = each(
            paths,
            lambda path: contents.move_entry(
                request.user, folder, path, posixpath.join(target, posixpath.basename(path))
            ),
        )
        place = posixpath.basename(target) or folder.name
        url = address("browse", folder, target)
        return done(request, outcome.message(f"moved to {place}"), url, level=outcome.level)
    context: dict[str, Any] = {"folder": folder, "paths": paths, "path": target, "crumbs": crumbs(target)}
    try:
        # Directories come first.
        entries = contents.list_entries(request.user, folder, target, limit=MAX_SHOWN_DIRECTORIES).entries
    except (FilesError, FolderError) as error:
        context["problem"] = str(error)
    else:
        own = set(paths)
        context["directories"] = [
            entry
            for entry in entries
            if entry.kind == EntryKind.DIRECTORY
            and entry.is_addressable
            and posixpath.join(target, entry.name) not in own
        ]
        context["is_cut"] = len(context["directories"]) == MAX_SHOWN_DIRECTORIES
        context["is_same"] = all(_parent(path) == target for path in paths)
    return render_dialog(request, "folders/_move.html", context, title=_("Move"))


@signed_in_act
def trash(request: UserRequest, folder_id: str) -> HttpResponse:
    """Move the chosen entries to the folder's trash."""
    folder = open_folder(request, folder_id, to_write=True).folder
    paths = request.POST.getlist("path")
    items: list[str] = []
    outcome = each(paths, lambda path: items.append(contents.trash_entry(request.user, folder, path).id))
    undo = {"url": reverse("folders:restore-entries", args=[folder.pk]), "values": {"items": items}} if items else None
    url = address("browse", folder, _parent(paths[0]) if paths else "")
    is_page = "from_file" in request.POST and not outcome.problems
    return done(request, outcome.message("moved to the trash"), url, level=outcome.level, show=is_page, undo=undo)


@signed_in_act
def restore(request: UserRequest, folder_id: str) -> HttpResponse:
    """Restore the chosen entries of the trash to where they were deleted from."""
    folder = open_folder(request, folder_id, to_write=True).folder
    outcome = each(request.POST.getlist("items"), lambda item: contents.restore_entry(request.user, folder, item))
    return done(request, outcome.message("restored"), address("trash", folder), level=outcome.level)


@signed_in_act
def delete(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask, or delete the chosen entries of the trash for ever."""
    folder = open_folder(request, folder_id, to_write=True).folder
    items = request.POST.getlist("items")
    if "confirm" not in request.POST:
        return render_dialog(
            request, "folders/_delete_items.html", {"folder": folder, "items": items}, title=_("Delete")
        )
    outcome = each(request.POST.getlist("items"), lambda item: contents.delete_entry(request.user, folder, item))
    return done(request, outcome.message("deleted for ever"), address("trash", folder), level=outcome.level)


@signed_in_form
def empty_trash(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask, or delete everything in the folder's trash for ever."""
    folder = open_folder(request, folder_id, to_write=True).folder
    context: dict[str, Any] = {"folder": folder, "items": None}
    if request.method == "POST":
        try:
            count = contents.empty_trash(request.user, folder)
        except (FilesError, FolderError) as error:
            context["problem"] = str(error)
        else:
            entries = "1 entry is" if count == 1 else f"{count} entries are"
            return done(request, f"{entries} deleted for ever.", address("trash", folder))
    return render_dialog(request, "folders/_delete_items.html", context, title=_("Empty the trash"))


def address(view: str, folder: Folder, path: str = "") -> str:
    """Return the address of a page about a path in the folder."""
    url = reverse(f"folders:{view}", args=[folder.pk])
    return f"{url}?{urlencode({'path': path})}" if path else url


def _given(request: UserRequest, name: str) -> str:
    return (request.POST if request.method == "POST" else request.GET).get(name, "")


def _required(name: str) -> str:
    """Return the name of one entry. Raises ValueError for an empty one, or one with a slash."""
    if not name:
        raise ValueError("It needs a name.")
    if "/" in name:
        raise ValueError("A name has no slash; to put it elsewhere, move it.")
    return name


def _parent(path: str) -> str:
    return posixpath.dirname(path)
