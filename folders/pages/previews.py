"""Which files a page can show, and the text of those that are text. No Django."""

from enum import StrEnum
from typing import Final

MAX_TEXT_PREVIEW_BYTES: Final = 256 * 2**10
MAX_NOTEBOOK_BYTES: Final = 16 * 2**20
MAX_IMAGE_BYTES: Final = 32 * 2**20
_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")  # raster only: SVG may hold scripts
_TEXTS: Final = (".txt", ".md", ".log", ".csv", ".tsv", ".json", ".yaml", ".yml", ".toml", ".ini", ".xml", ".html")


class PreviewKind(StrEnum):
    """How a page shows a file, by its name; a file without a known name is shown as text if it is text."""

    TEXT = "text"
    IMAGE = "image"
    NOTEBOOK = "notebook"
    UNKNOWN = "unknown"


def preview_kind(name: str) -> PreviewKind:
    """Return how a file of this name is shown."""
    lowered = name.lower()
    if lowered.endswith(_IMAGES):
        return PreviewKind.IMAGE
    if lowered.endswith(".ipynb"):
        return PreviewKind.NOTEBOOK
    return PreviewKind.TEXT if lowered.endswith(_TEXTS) else PreviewKind.UNKNOWN


def preview_text(content: bytes, *, is_whole: bool) -> str | None:
    """Return the text of a file or of its beginning, None if it is not UTF-8 text."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(content) - 3:  # else a character is cut at the end
            return None
        return content[: error.start].decode()
