"""The editor of small text files. It saves only over what it has read: If-Match (RFC 9110, section 13.1.1)."""

import posixpath
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from django.views.decorators.vary import vary_on_headers

from accounts.requests import UserRequest
from folders.contents import services as contents
from folders.errors import FolderError
from folders.files.errors import (
    ContentChangedError,
    FilesError,
    FileTooLargeError,
    NotTextError,
)
from folders.pages.browser_views import crumbs, show, show_problem
from folders.pages.entry_views import address
from folders.pages.responses import OpenedFolder, open_folder
from folders.responses import status_of


@require_http_methods(["GET", "HEAD", "POST", "PUT"])
@login_required
@never_cache
@vary_on_headers("HX-Request")
def edit(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show a text file in the editor. PUT saves for the page's script, POST for a page without one."""
    opened = open_folder(request, folder_id, to_write=True)
    path = request.GET.get("path", "")
    if request.method == "PUT":
        return _put(request, opened, path)
    context: dict[str, Any] = {"path": path, "name": posixpath.basename(path), "crumbs": crumbs(path)}
    if request.method == "POST":
        text, etag = request.POST.get("text", ""), request.POST.get("etag", "")
        try:
            _save(request, opened, path, text, etag)
        except (FilesError, FolderError) as error:
            context |= {"text": text, "etag": etag, "problem": str(error)}
            return show(request, opened, "folders/_edit.html", context, status=status_of(error))
        messages.success(request, f"Saved {context['name']}.")
        return redirect(address("file", opened.folder, path))
    try:
        read = contents.read_text(request.user, opened.folder, path)
    except (FileTooLargeError, NotTextError) as error:
        messages.error(request, str(error))
        return redirect(address("file", opened.folder, path))
    except (FilesError, FolderError) as error:
        return show_problem(request, opened, error, path)
    context |= {"text": read.text, "etag": read.etag, "has_crlf": "\r\n" in read.text}
    return show(request, opened, "folders/_edit.html", context)


def _put(request: UserRequest, opened: OpenedFolder, path: str) -> HttpResponse:
    """Save the body; respond with the new ETag, or with `detail` and, if the file has changed, its ETag now."""
    try:
        etag = _save(request, opened, path, request.body.decode(), request.headers.get("If-Match", ""))
    except UnicodeDecodeError:
        return JsonResponse({"detail": "The text is not UTF-8."}, status=400)
    except (FilesError, FolderError) as error:
        problem = {"detail": str(error)}
        if isinstance(error, ContentChangedError):
            problem["etag"] = _etag_of(request, opened, path)
        return JsonResponse(problem, status=status_of(error))
    return JsonResponse({"etag": etag}, headers={"ETag": etag})


def _save(request: UserRequest, opened: OpenedFolder, path: str, text: str, etag: str) -> str:
    """Save the text with the line ends that the file had, and return the new ETag."""
    lines = text.replace("\r\n", "\n")
    if request.headers.get("X-Line-Ends", request.POST.get("line_ends")) == "crlf":
        lines = lines.replace("\n", "\r\n")
    return contents.save_text(request.user, opened.folder, path, lines, if_match=etag).etag


def _etag_of(request: UserRequest, opened: OpenedFolder, path: str) -> str:
    try:
        return contents.read_text(request.user, opened.folder, path).etag
    except (FilesError, FolderError):
        return ""  # gone meanwhile
