"""Template tags of the pages of data folders: addresses with paths, icons of files, amounts of storage."""

import posixpath
from typing import Final
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.translation import gettext, ngettext

from folders.files.entries import EntryKind, FolderEntry
from folders.files.paths import display
from folders.files.trash import TrashedEntry
from folders.models import Folder
from folders.pages.previews import PreviewKind, preview_kind
from resources.amounts.units import size_text

register = template.Library()


_ARCHIVES: Final = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".whl")
_CODE: Final = (".py", ".sh", ".js", ".ts", ".c", ".h", ".cpp", ".cu", ".rs", ".go", ".java", ".r", ".jl", ".sql")


@register.simple_tag
def folder_url(view: str, folder: Folder, path: str = "") -> str:
    """Return the address of a page about a path in a folder."""
    address = reverse(f"folders:{view}", args=[folder.pk])
    return f"{address}?{urlencode({'path': path})}" if path else address


@register.simple_tag
def download_url(folder: Folder, path: str, *, inline: bool = False) -> str:
    """Return the address from which a file is downloaded, or with `inline` shown if it is a raster image."""
    query = {"path": path} | ({"inline": "1"} if inline else {})
    return f"{reverse('folder-download', args=[folder.pk])}?{urlencode(query)}"


@register.simple_tag
def archive_url(folder: Folder) -> str:
    """Return the address that has entries of the folder as a zip archive."""
    return reverse("folder-zip", args=[folder.pk])


@register.simple_tag
def uploads_url(folder: Folder) -> str:
    """Return the address at which uploads to the folder are begun."""
    return reverse("folder-uploads", args=[folder.pk])


@register.filter
def origin(item: TrashedEntry) -> str:
    """Return from which directory an entry was deleted, for people; "" if it lay directly in the folder."""
    directory = display(posixpath.dirname(item.path))
    return gettext("from %(directory)s") % {"directory": directory} if directory else ""


@register.filter
def entry_icon(entry: FolderEntry) -> str:
    """Return the name of an entry's icon."""
    if entry.kind == EntryKind.DIRECTORY:
        return "folder"
    if entry.kind != EntryKind.FILE:
        return "link" if entry.kind == EntryKind.SYMLINK else "plug"
    name = entry.name.lower()
    if name.endswith(_ARCHIVES):
        return "archive"
    if name.endswith(_CODE):
        return "code"
    icons = {PreviewKind.IMAGE: "image", PreviewKind.NOTEBOOK: "notebook", PreviewKind.TEXT: "logs"}
    return icons.get(preview_kind(entry.name), "file")


@register.simple_tag
def joined(directory: str, name: str) -> str:
    """Return the path of an entry of a directory."""
    return f"{directory}/{name}" if directory else name


@register.simple_tag
def of_limit(used: int, limit: int | None) -> str:
    """Return an amount of storage against its limit: "3.2 of 50 GiB", "700 MiB of 50 GiB", "3.2 GiB, no limit"."""
    used_text = size_text(used)
    if limit is None:
        return gettext("%(used)s, no limit") % {"used": used_text}
    limit_text = size_text(limit)
    number, unit = used_text.split()
    if unit == limit_text.split()[1] or not used:
        used_text = number
    return gettext("%(used)s of %(limit)s") % {"used": used_text, "limit": limit_text}


@register.simple_tag
def of_files(used: int, limit: int | None) -> str:
    """Return a number of files against its limit: "1,204 of 100,000 files", "1 file"."""
    if limit is None:
        return ngettext("%(count)s file", "%(count)s files", used) % {"count": f"{used:,}"}
    return gettext("%(used)s of %(limit)s files") % {"used": f"{used:,}", "limit": f"{limit:,}"}
