"""The program: fetches into a directory beside its target, and renames that once it is whole.

Its only argument is a file with the job, which it removes. What it prints is in `job`; the last line is
{"found": ...} or {"problem": ...}.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from imports.fetcher import archives, checkout, environments, network, packages, survey
from imports.fetcher.git import Repository
from imports.fetcher.job import Credential, FetchError, FetchJob, say
from imports.fetcher.public_addresses import networks_of

MARKER: Final = ".gpuplatform-import"  # in the tree: which import made it, and what it found
MEMORY: Final = "/dev/shm"  # noqa: S108  # a file system in memory, where the container has one
MAX_MESSAGE: Final = 400


def main() -> None:
    """Do what the file says that is the argument, and exit."""
    signal.signal(signal.SIGTERM, _stop)
    path = Path(sys.argv[1])
    job = job_of(json.loads(path.read_text()))
    path.unlink()
    sys.exit(run(job))


def job_of(values: dict[str, Any]) -> FetchJob:
    """Return the job that the platform wrote."""
    credential = values.pop("credential", None)
    return FetchJob(
        **{
            **values,
            "target": Path(values["target"]).expanduser(),
            "networks": networks_of(values.get("networks", ())),
            "credential": Credential(**credential) if credential else None,
        }
    )


def run(job: FetchJob) -> int:
    """Do the job and say what came of it; return the exit code."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gpuplatform-import-", dir=memory) as scratch:
        try:
            found = _done(job, Path(scratch))
            own = Path(scratch) / "known_hosts"
            new = (
                [line for line in own.read_text().splitlines() if line.startswith(f"{_host(job)} ")]
                if own.exists()
                else []
            )
            say({"found": found, "known_hosts": "\n".join(new)[:4000]})
            return 0
        except FetchError as error:
            say({"problem": str(error)[:MAX_MESSAGE]})
        except (OSError, ValueError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            say({"problem": f"It could not be fetched: {reason}."[:MAX_MESSAGE]})
    return 1


def _host(job: FetchJob) -> str:
    return job.credential.host if job.credential else ""


def _done(job: FetchJob, scratch: Path) -> dict[str, Any]:
    if job.is_look:
        with tempfile.TemporaryDirectory(prefix="gpuplatform-look-") as directory:
            return FETCHERS[job.kind](Path(directory) / "tree", job, scratch)
    if job.is_present:
        marked = _marked(job.target)
        return _installed(job, marked["found"] if marked else {"notes": job.notes})
    before = _marked(job.target)
    if before is not None and before.get("import") == job.id:  # it was fetched, and the host was lost before it said so
        return _installed(job, before["found"])
    if os.path.lexists(job.target):
        raise FetchError(f"There is a file or directory {job.target.name} already. Choose another name.")
    job.target.parent.mkdir(parents=True, exist_ok=True)
    staging = job.target.with_name(f".{job.target.name}.{job.id}")
    for name in job.stale:
        _remove(staging.with_name(name))
    try:
        _remove(staging)
        found = FETCHERS[job.kind](staging, job, scratch)
        _mark(staging, {"import": job.id, "found": found})
        if os.path.lexists(job.target):
            raise FetchError(f"There is a file or directory {job.target.name} already. Choose another name.")
        os.rename(staging, job.target)
    finally:
        _remove(staging)
        _remove(staging.with_name(f"{staging.name}.only"))
        staging.with_name(f"{staging.name}.part").unlink(missing_ok=True)
    return _installed(job, found)


def _installed(job: FetchJob, found: dict[str, Any]) -> dict[str, Any]:
    if job.installs and job.target.is_dir():
        packages.install(job.target, job)
        found["notes"] = [*dict.fromkeys([*found.get("notes", ()), *job.notes])]
    return found


def _marked(tree: Path) -> dict[str, Any] | None:
    try:
        value = json.loads((tree / MARKER).read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("found"), dict) else None


def _mark(tree: Path, about: dict[str, Any]) -> None:
    marker = tree / MARKER
    if os.path.lexists(marker):
        _remove(marker)
    marker.write_text(json.dumps(about))
    excluded = tree / ".git" / "info" / "exclude"
    if excluded.parent.is_dir() or (tree / ".git").is_dir():
        excluded.parent.mkdir(exist_ok=True)
        with excluded.open("a") as file:
            file.write(f"{MARKER}\n{environments.VENV}\n")


def _git(tree: Path, job: FetchJob, scratch: Path) -> dict[str, Any]:
    repository, commit = checkout.fetch(tree, job, scratch)
    if job.is_look:
        entries = {entry.path: entry for entry in repository.entries(commit.id)}
        files = ((entry.path, entry.size) for entry in entries.values() if not entry.is_submodule)
        found = survey.survey(files, _reads(repository, {path: entry.id for path, entry in entries.items()}), job)
        found["submodules"] = sum(entry.is_submodule for entry in entries.values())
        opened = commit.path if _is_path(commit.path, entries) else ""
    else:
        checkout.check_out(repository, commit, job, scratch)
        found = survey.survey(survey.files_below(tree, job), survey.read_below(tree), job)
        opened = survey.check_path(commit.path, tree)
    if commit.path and not opened:
        job.note(f"There is no {commit.path[:100]} in it.")
    return {**found, "branch": commit.branch, "commit": commit.id, "path": opened}


def _is_path(path: str, entries: dict[str, Any]) -> bool:
    return path in entries or any(name.startswith(f"{path}/") for name in entries)


def _reads(repository: Repository, ids: dict[str, str]) -> survey.Read:
    def read(path: str) -> bytes:
        content = repository.run("cat-file", "blob", ids[path], words="Reads what is there", limit=2**24)
        return content[: survey.MAX_READ_BYTES]

    return read


def _notebook(tree: Path, job: FetchJob, scratch: Path) -> dict[str, Any]:
    tree.mkdir()
    name = Path(unquote(urlsplit(job.url).path)).name.replace(os.sep, "-")
    network.download(job.url, tree / name, job, "Fetches the notebook")
    content = (tree / name).read_bytes()
    try:
        is_notebook = isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        is_notebook = False
    if not is_notebook:
        raise FetchError("What is at this address is no notebook, but perhaps a page that shows one.")
    return {**survey.survey(survey.files_below(tree, job), survey.read_below(tree), job), "path": name}


def _archive(tree: Path, job: FetchJob, scratch: Path) -> dict[str, Any]:
    _unpack(job.url, tree, job)
    found = survey.survey(survey.files_below(tree, job), survey.read_below(tree), job)
    return {**found, "path": survey.check_path(job.path, tree)}


def _unpack(url: str, tree: Path, job: FetchJob, before: int = 0) -> int:
    part = tree.with_name(f"{tree.name}.part")
    part.unlink(missing_ok=True)
    try:
        size = network.download(url, part, job, "Fetches the archive", before=before)
        archives.unpack(part, tree, job)
    finally:
        part.unlink(missing_ok=True)
    return size


def _zenodo(tree: Path, job: FetchJob, scratch: Path) -> dict[str, Any]:
    """Fetch the files of a record; its only archive is unpacked."""
    site, _, record = job.url.partition("/records/")
    about = network.read_json(f"{site}/api/records/{record}", job)
    try:
        files = [(str(each["key"]), str(each["links"]["self"]), int(each["size"])) for each in about["files"]]
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        files = []
    if not files:
        raise FetchError("This record of Zenodo has no files for everybody.")
    job.check_size(sum(size for _, _, size in files), len(files))
    if len(files) == 1 and files[0][0].lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")):
        _unpack(files[0][1], tree, job)
    else:
        tree.mkdir()
        done = 0
        for name, url, _size in files:
            if name in ("", ".", "..", ".git") or "/" in name or not name.isprintable() or len(name.encode()) > 250:
                job.note("Files with names that are none were left out.")
                continue
            done += network.download(url, tree / name, job, f"Fetches {name}", before=done)
    found = survey.survey(survey.files_below(tree, job), survey.read_below(tree), job)
    return {**found, "path": survey.check_path(job.path, tree)}


FETCHERS: Final[dict[str, Callable[[Path, FetchJob, Path], dict[str, Any]]]] = {
    "git": _git,
    "huggingface": _git,
    "notebook": _notebook,
    "archive": _archive,
    "zenodo": _zenodo,
}


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def _stop(_signal: int, _frame: object) -> None:
    """End as a failure does, so that what was begun is removed; once, since the signal comes until the program ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise FetchError("It was cancelled.")
