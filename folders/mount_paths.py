"""Rules of the paths at which sessions mount folders. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from folders.names import HOME, RESERVED_NAMES

PARENTS: Final = (HOME, "/data", "/media", "/mnt", "/srv")  # a folder is mounted below one of these
RESERVED: Final = frozenset(f"{HOME}/{name}" for name in RESERVED_NAMES)
MAX_PATH_LENGTH: Final = 255
COMPONENT: Final = re.compile(r"[A-Za-z0-9._+@-]+")


def absolute_path(path: str, name: str) -> str:
    """Return where a folder called `name` is mounted: at `path`, seen from home, or at its name if that is empty."""
    path = path.strip()
    absolute = path if path.startswith("/") else f"{HOME}/{path or name}"
    return absolute.rstrip("/") or "/"


def path_error(path: str) -> str | None:
    """Return what is wrong with an absolute path as the place of a folder, or None."""
    if len(path) > MAX_PATH_LENGTH:
        return f"a path has at most {MAX_PATH_LENGTH} characters."
    if not all(COMPONENT.fullmatch(each) and each not in (".", "..") for each in path.split("/")[1:]):
        return f"{path!r} cannot be used: write letters, digits and . _ + @ - between single slashes, no . or .. alone."
    if path in PARENTS:
        return f"{path} itself is reserved: choose a path below it."
    if not any(path.startswith(f"{parent}/") for parent in PARENTS):
        return f"{path} is a path of the system: choose one below {', '.join(PARENTS[:-1])} or {PARENTS[-1]}."
    if "/".join(path.split("/")[:4]).lower() in RESERVED:
        return f"{path} is reserved for the platform: choose another path."
    return None


def overlapping(path: str, others: Iterable[str]) -> str | None:
    """Return the first of the other absolute paths that equals this one, lies in it or contains it; None if none."""
    return next((other for other in others if f"{other}/".startswith(f"{path}/") or path.startswith(f"{other}/")), None)
