"""What users do with the files in a folder: rights, quota and the operation itself, for pages and API alike.

Each function raises FolderError or FilesError with a message for the user. Uploads and downloads are elsewhere: they
take longer than one call.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from accounts.models import User
from folders.files.entries import EntryKind, FolderEntry, Listing, Order
from folders.files.errors import EntryNotFoundError, StorageAccessError
from folders.files.folder_files import FolderFiles, TextFile
from folders.files.trash import TrashedEntry
from folders.models import Folder
from folders.quotas import rules as quota
from folders.sharing.access import Access, require
from folders.storage import paths as storage
from resources import clock


@contextmanager
def opened(user: User, folder: Folder, needed: Access) -> Iterator[FolderFiles]:
    """Give the files of the folder to a block, if `user` has the right to them."""
    require(user, folder, needed)
    with storage.files_of(folder) as files:
        yield files


def list_entries(
    user: User,
    folder: Folder,
    path: str = "",
    *,
    order: Order = Order.NAME,
    descending: bool = False,
    offset: int = 0,
    limit: int | None = None,
) -> Listing:
    """Return a part of the sorted entries of a directory."""
    with opened(user, folder, Access.READ) as files:
        return files.list(path, order=order, descending=descending, offset=offset, limit=limit)


def make_directory(user: User, folder: Folder, path: str, *, parents: bool = False) -> FolderEntry:
    """Make a directory and return it; with `parents` also those above it, and none if it is there already."""
    with opened(user, folder, Access.WRITE) as files:
        quota.check_room(folder, add_files=1)
        made = files.mkdir(path, parents=parents)
    quota.record_growth(folder, add_files=1)
    return made


def move_entry(user: User, folder: Folder, source: str, target: str, *, replace: bool = False) -> FolderEntry:
    """Move or rename an entry and return it at its new path."""
    with opened(user, folder, Access.WRITE) as files:
        return files.move(source, target, replace=replace)


def trash_entry(user: User, folder: Folder, path: str) -> TrashedEntry:
    """Move an entry to the folder's trash, where it still counts, and return it there."""
    with opened(user, folder, Access.WRITE) as files:
        return files.trash.put(path, clock.now())


def trashed_entries(user: User, folder: Folder) -> list[TrashedEntry]:
    """Return what is in the folder's trash, the latest first."""
    with opened(user, folder, Access.READ) as files:
        return files.trash.items()


def restore_entry(user: User, folder: Folder, item_id: str, path: str | None = None) -> FolderEntry:
    """Move an item of the trash back to where it came from, or to `path`, and return it there."""
    with opened(user, folder, Access.WRITE) as files:
        return files.trash.restore(item_id, path)


def delete_entry(user: User, folder: Folder, item_id: str) -> None:
    """Delete an item of the trash for ever."""
    with opened(user, folder, Access.WRITE) as files:
        files.trash.expunge(item_id)
        _remove_expunged(folder, files)


def empty_trash(user: User, folder: Folder) -> int:
    """Delete everything in the folder's trash for ever; return how many items there were."""
    with opened(user, folder, Access.WRITE) as files:
        count = files.trash.empty()
        _remove_expunged(folder, files)
    return count


def read_text(user: User, folder: Folder, path: str) -> TextFile:
    """Return the content of a small text file."""
    with opened(user, folder, Access.READ) as files:
        return files.read_text(path)


def save_text(user: User, folder: Folder, path: str, text: str, *, if_match: str | None) -> TextFile:
    """Save a small text file; `if_match` is the etag of what was read, "*" for any content, None for a new file."""
    with opened(user, folder, Access.WRITE) as files:
        before_bytes = _length_bytes(files, path)
        more_bytes = len(text.encode(errors="replace")) - (before_bytes or 0)
        more_files = 1 if before_bytes is None else 0
        if more_bytes > 0 or more_files:
            quota.check_room(folder, add_bytes=max(0, more_bytes), add_files=more_files)
        saved = files.write_text(path, text, if_match=if_match)
    quota.record_growth(folder, add_bytes=more_bytes, add_files=more_files)
    return saved


def _length_bytes(files: FolderFiles, path: str) -> int | None:
    """Return the length of the file that is to be replaced, None if there is none."""
    try:
        entry = files.stat(path)
    except EntryNotFoundError:
        return None
    return entry.length_bytes if entry.kind == EntryKind.FILE else None


def _remove_expunged(folder: Folder, files: FolderFiles) -> None:
    """Remove what was given up from the disk as far as that is quick, and correct what the folder takes."""
    with suppress(StorageAccessError):  # what root of a session has made, its hosts remove
        files.trash.purge()
    quota.record_growth(folder, add_bytes=-files.trash.freed.bytes, add_files=-files.trash.freed.files)
