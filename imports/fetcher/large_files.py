"""Files of Git LFS, by its own API over checked addresses: the repository's .lfsconfig leads nowhere.

https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from imports.fetcher import network
from imports.fetcher.git import CommitFile, Repository
from imports.fetcher.job import FetchError, FetchJob

POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n"
)
MAX_POINTER_BYTES: Final = 1024
AT_ONCE: Final = 100
TYPE: Final = "application/vnd.git-lfs+json"
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,60}")


class Pointer(NamedTuple):
    """A file that lies elsewhere."""

    path: Path
    id: str
    size: int


def replace_pointers(repository: Repository, entries: list[CommitFile], job: FetchJob) -> None:
    """Put the files to which pointers lead into their places. Raises FetchError."""
    small = [entry for entry in entries if entry.mode.startswith("100") and 100 < (entry.size or 0) < MAX_POINTER_BYTES]
    pointers = list(_pointers(repository.tree, small))
    if not pointers:
        return
    if not repository.remote.is_https:
        job.note("Large files (Git LFS) are fetched over https:// only; pointers to them are in their places.")
        return
    job.count(sum(pointer.size for pointer in pointers))
    done = 0
    for start in range(0, len(pointers), AT_ONCE):
        part = pointers[start : start + AT_ONCE]
        actions = _actions(repository.remote.url, part, job)
        for pointer in part:
            done += _replace(pointer, actions.get(pointer.id, {}), job, done)


def _pointers(tree: Path, entries: list[CommitFile]) -> Iterator[Pointer]:
    for entry in entries:
        path = tree / entry.path
        if path.is_symlink() or not path.is_file():
            continue
        if found := POINTER.fullmatch(path.read_bytes()[:MAX_POINTER_BYTES]):
            yield Pointer(path, found[1].decode(), int(found[2]))


def _actions(url: str, pointers: list[Pointer], job: FetchJob) -> dict[str, Any]:
    """Return how each object is fetched, by its id."""
    body = {
        "operation": "download",
        "transfers": ["basic"],
        "hash_algo": "sha256",
        "objects": [{"oid": pointer.id, "size": pointer.size} for pointer in pointers],
    }
    batch = f"{url.rstrip('/').removesuffix('.git')}.git/info/lfs/objects/batch"
    headers = {"Accept": TYPE, "Content-Type": TYPE}
    answer = network.read_json(batch, job, headers, json.dumps(body).encode())
    objects = answer.get("objects") if isinstance(answer, dict) else None
    if not isinstance(objects, list):
        raise FetchError("The host of the large files (Git LFS) sent an answer that is not understood.")
    return {str(each.get("oid")): each for each in objects if isinstance(each, dict)}


def _replace(pointer: Pointer, about: dict[str, Any], job: FetchJob, before: int) -> int:
    actions = about.get("actions")
    action = actions.get("download") if isinstance(actions, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("href"), str):
        raise FetchError(f"The host does not have the large file {pointer.path.name} (Git LFS).")
    given = action.get("header")
    headers = {
        name: value
        for name, value in (given.items() if isinstance(given, dict) else ())
        if _HEADER.fullmatch(name) and isinstance(value, str) and value.isprintable() and name.lower() != "host"
    }
    part = pointer.path.with_name(f".{pointer.id}.part")
    words = f"Fetches the large file {pointer.path.name}"
    size = network.download(action["href"], part, job, words, before=before, headers=headers)
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while block := file.read(network.BLOCK):
            digest.update(block)
    if digest.hexdigest() != pointer.id:
        raise FetchError(f"The large file {pointer.path.name} is not what the repository says (Git LFS).")
    part.chmod(pointer.path.stat().st_mode & 0o777)
    os.replace(part, pointer.path)
    return size
