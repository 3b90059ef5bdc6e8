"""Paths in a folder: what is accepted, and how names are shown. Names are compared byte by byte, never normalized."""

import unicodedata
from typing import Final

from folders.files.errors import InvalidPathError

MAX_NAME_BYTES: Final = 255  # NAME_MAX of Linux file systems
MAX_PATH_BYTES: Final = 4096
_UNWANTED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line separators

Parts = tuple[str, ...]


def parts_of(path: str) -> Parts:
    """Return the names in a relative path, () for "". Raises InvalidPathError for all that is not plainly below.

    There is one way to write each path: "..", ".", empty names, slashes at the ends and NUL are refused, not repaired.
    """
    if not path:
        return ()
    try:
        encoded = path.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidPathError("The path has characters that no file name can have.") from error
    if len(encoded) > MAX_PATH_BYTES:
        raise InvalidPathError(f"The path is longer than {MAX_PATH_BYTES} bytes.")
    if "\0" in path:
        raise InvalidPathError("The path has a NUL character, which no file name can have.")
    if path.startswith("/"):
        raise InvalidPathError("The path begins with a slash; paths begin in the folder.")
    parts = tuple(path.split("/"))
    for part in parts:
        if part in ("", ".", ".."):
            raise InvalidPathError('The path has a part that is empty, "." or "..".')
        if len(part.encode(errors="surrogateescape")) > MAX_NAME_BYTES:
            raise InvalidPathError(f"A name in the path is longer than {MAX_NAME_BYTES} bytes.")
    return parts


def new_parts_of(path: str) -> Parts:
    """Return the names in the path of an entry to be made; stricter than `parts_of`, and not empty.

    The last name may have no control characters or line separators. What a session has made with such a name can still
    be read, renamed and deleted.
    """
    parts = entry_parts_of(path)
    if any(unicodedata.category(character) in _UNWANTED for character in parts[-1]):
        raise InvalidPathError("A new name cannot have control characters or line breaks.")
    return parts


def entry_parts_of(path: str) -> Parts:
    """Return the names in the path of an entry of the folder, not of the folder itself."""
    parts = parts_of(path)
    if not parts:
        raise InvalidPathError("The path is empty: name something in the folder.")
    return parts


def is_addressable(name: str) -> bool:
    """Return whether the name is Unicode, which JSON and URLs can carry; on disk it may be any bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def display(name: str) -> str:
    """Return the name for people: bytes that are not UTF-8 and control characters as U+FFFD."""
    return "".join("\ufffd" if unicodedata.category(character) in _UNWANTED else character for character in name)
