"""What a tree has in it that says how it is run: read from its files, or from a commit whose files were not fetched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from imports.fetcher import conda
from imports.fetcher.job import MAX_RESULT_BYTES, FetchError, FetchJob

MAX_NOTEBOOKS: Final = 50
MAX_READ_BYTES: Final = 256 * 1024
MAX_NAME: Final = 200
FILES: Final = (
    *("requirements.txt", "environment.yml", "pyproject.toml", "uv.lock", "Dockerfile"),
    *(".devcontainer/devcontainer.json", ".devcontainer.json", "README.md", "README.rst", "README.txt", "README"),
)
# Where the frameworks are named that environments are built around.
NAMING: Final = ("requirements.txt", "environment.yml", "pyproject.toml")
FRAMEWORKS: Final = ("torch", "tensorflow", "jax", "scikit-learn", "keras", "transformers", "pandas")
_FRAMEWORK: Final = re.compile(
    rf"(?<![\w.-])({'|'.join(FRAMEWORKS)})(?![\w-])(?:\[[^\]\n]{{0,200}}\])?[ \t]*(?:==[ \t]*([0-9][0-9.]{{0,15}}))?",
    re.IGNORECASE,
)
_BASE: Final = re.compile(r"(?im)^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)")
# What has no end reaches to that of the text, so that each part of the text is read once.
_STRING: Final = r'("(?:\\.|[^"\\])*(?:"|\\?\Z))'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")

Found = Iterable["tuple[str, int | None]"]
Read = Callable[[str], bytes]


def survey(files: Found, read: Read, job: FetchJob) -> dict[str, Any]:
    """Return what was found, small enough for a line of output. `read` returns the beginning of one of the files."""
    size, count, is_known, notebooks = 0, 0, True, []
    named = set()
    for path, length in files:
        count += 1
        size, is_known = size + (length or 0), is_known and length is not None
        if path in FILES:
            named.add(path)
        elif path.endswith(".ipynb") and ".ipynb_checkpoints" not in path and _is_shown(path):
            notebooks.append(path)
    job.check_size(0, count)
    present: list[str] = [name for name in FILES if name in named]
    notebooks.sort(key=lambda path: (path.count("/"), path))
    found: dict[str, Any] = {
        "files": count,
        "bytes": size if is_known else None,
        "present": present,
        "notebooks": notebooks[:MAX_NOTEBOOKS],
        "more_notebooks": max(0, len(notebooks) - MAX_NOTEBOOKS),
        "frameworks": _frameworks(present, read),
        "base": _base(read("Dockerfile")) if "Dockerfile" in named else "",
        "devcontainer": next((_devcontainer(read(name)) for name in present if name.endswith("container.json")), {}),
        "notes": job.notes,
    }
    if "environment.yml" in named:
        wanted = conda.translate(read("environment.yml").decode(errors="replace"))
        found["frameworks"] |= {"python": wanted.python} if wanted.python else {}
        if wanted.note and not {"requirements.txt", "uv.lock"} & named:
            job.note(wanted.note)
    while len(json.dumps(found)) > MAX_RESULT_BYTES and found["notebooks"]:
        found["notebooks"].pop()
        found["more_notebooks"] += 1
    return found


def files_below(tree: Path, job: FetchJob) -> Iterator[tuple[str, int]]:
    """Yield the files of a tree with their sizes, but those of git. Raises FetchError for too many."""
    count = 0
    for directory, names, files in os.walk(tree):
        names[:] = [name for name in names if name not in (".git", ".venv")]
        for name in files:
            count += 1
            job.check_size(0, count)
            path = os.path.join(directory, name)
            yield os.path.relpath(path, tree), os.lstat(path).st_size


def read_below(tree: Path) -> Read:
    """Return what reads the beginning of a file of the tree; a link is as good as empty."""

    def read(name: str) -> bytes:
        path = tree / name
        if path.is_symlink() or path.parent.resolve() != tree.resolve() / Path(name).parent:
            return b""
        with path.open("rb") as file:
            return file.read(MAX_READ_BYTES)

    return read


def check_path(path: str, tree: Path) -> str:
    """Return the path if the tree has it, else "" ."""
    try:
        return path if path and (tree / path).exists() else ""
    except (OSError, ValueError) as error:
        raise FetchError("The path to open is not one.") from error


def _frameworks(present: list[str], read: Read) -> dict[str, str]:
    """Return {framework: version that is asked for, or ""} of the files that name packages."""
    found: dict[str, str] = {}
    for name in present:
        if name in NAMING:
            lines = (line.partition("#")[0] for line in read(name).decode(errors="replace").splitlines())
            for match in _FRAMEWORK.finditer("\n".join(lines)):
                found[match[1].lower()] = found.get(match[1].lower(), "") or match[2] or ""
    return found


def _base(content: bytes) -> str:
    """Return the image on which the last stage of a Dockerfile builds, of those that are not stages themselves."""
    found = [
        name for name in _BASE.findall(content.decode(errors="replace")) if "$" not in name and len(name) < MAX_NAME
    ]
    return next((name for name in reversed(found) if ":" in name or "/" in name), next(iter(found), ""))


def _devcontainer(content: bytes) -> dict[str, Any]:
    """Return what a devcontainer.json, which is JSON with comments, says of hardware and image."""
    try:
        text = content.decode(errors="replace")
        for left_out in (_COMMENT, _LAST_COMMA):
            text = left_out.sub(lambda match: match[1] or "", text)
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    needs = value.get("hostRequirements") if isinstance(value, dict) else None
    found: dict[str, Any] = {}
    if isinstance(needs, dict):
        if isinstance(needs.get("cpus"), int) and not isinstance(needs["cpus"], bool):
            found["cpus"] = max(1, min(needs["cpus"], 1024))
        if memory := re.fullmatch(r"([0-9]{1,6})\s*(tb|gb|mb|kb)?", str(needs.get("memory", "")).lower()):
            power = {"tb": 40, "gb": 30, "mb": 20, "kb": 10}.get(memory[2] or "", 0)
            found["memory"] = int(memory[1]) << power
        if "gpu" in needs:
            found["gpu"] = "optional" if needs["gpu"] == "optional" else bool(needs["gpu"])
    if isinstance(value, dict) and isinstance(value.get("image"), str):
        found["image"] = value["image"][:MAX_NAME]
    return found


def _is_shown(path: str) -> bool:
    return len(path) <= MAX_NAME and path.isprintable()
