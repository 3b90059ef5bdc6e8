"""Models that MLflow stored in a folder, as drafts of revisions: their `MLmodel` files are found and read.

Below `mlruns` or `mlartifacts` they are where the version of MLflow has them: `<experiment>/<run>/artifacts/<name>`, or
`<experiment>/models/<model>/artifacts`. Runs and models are named in `meta.yaml`, or in a database.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from deployments.definitions import mlflow_database
from deployments.definitions.drafts import Draft
from deployments.definitions.located import document_of
from deployments.definitions.mlflow_database import TrackedNames
from deployments.validation import MODEL_PATH
from folders.files.entries import EntryKind, FolderEntry
from folders.files.errors import EntryKindError, EntryNotFoundError, FilesError
from folders.files.folder_files import FolderFiles
from restapi.plain_yaml import PlainYamlError

MODEL_FILE: Final = "MLmodel"
TREES: Final = ("mlruns", "mlartifacts")
VARIANT: Final = "mlflow"
SERVED_FLAVOR: Final = "python_function"
MAX_DIRECTORIES: Final = 1000  # that are looked into
MAX_ENTRIES: Final = 1000  # of each
MAX_MODELS: Final = 200
MAX_DATABASES: Final = 4  # that are read; each is large
MAX_DEPTH: Final = 6  # below mlruns
MAX_READ: Final = 2**21  # characters of all files
_WITHOUT_MODELS: Final = frozenset({"metrics", "params", "tags", "inputs", "outputs", "traces", ".trash"})
_MAX_SHOWN_PACKAGES: Final = 10


def drafts_in(files: FolderFiles, path: str) -> tuple[list[Draft], bool]:
    """Return drafts of the models at a directory or in its trees, newest first, and whether all were looked at."""
    search = _Search(files)
    found = sorted((search.draft(at) for at in search.models(path)), key=_age)
    return found, search.is_complete


def _age(draft: Draft) -> tuple[float, str]:
    return (-draft.created_at.timestamp() if draft.created_at else 0, draft.source)


class _Search:
    """Looks for models, at a bounded cost."""

    def __init__(self, files: FolderFiles) -> None:
        self.is_complete = True
        self._files = files
        self._left = MAX_DIRECTORIES
        self._unread = MAX_READ
        self._tracked: dict[str, TrackedNames] = {}

    def models(self, path: str) -> Iterator[str]:
        """Yield the directories of at most MAX_MODELS models."""
        for count, at in enumerate(self._start(path)):
            if count == MAX_MODELS:
                self.is_complete = False
                return
            yield at

    def _start(self, path: str) -> Iterator[str]:
        entries = self._list(path)
        if _has_model(entries):
            yield path
        elif set(path.split("/")) & set(TREES):
            yield from self._below(path, entries, 1)
        for each in entries:
            if each.kind == EntryKind.DIRECTORY and each.name in TREES:
                tree = posixpath.join(path, each.name)
                yield from self._below(tree, self._list(tree), 1)

    def _below(self, path: str, entries: list[FolderEntry], depth: int) -> Iterator[str]:
        for each in sorted(entries, key=lambda entry: entry.modified_at, reverse=True):
            if each.kind != EntryKind.DIRECTORY or each.name in _WITHOUT_MODELS or not each.name.isprintable():
                continue
            if not self._left or depth > MAX_DEPTH:
                self.is_complete = False
                return
            at = posixpath.join(path, each.name)
            try:
                within = self._list(at)
            except (EntryNotFoundError, EntryKindError):  # removed meanwhile
                continue
            if _has_model(within):
                yield at
            else:
                yield from self._below(at, within, depth + 1)

    def _list(self, path: str) -> list[FolderEntry]:
        self._left -= 1
        listing = self._files.list(path, limit=MAX_ENTRIES)
        self.is_complete &= listing.total <= MAX_ENTRIES
        return listing.entries

    def draft(self, path: str) -> Draft:
        """Return the draft of the model in a directory."""
        source = posixpath.join(path, MODEL_FILE)
        try:
            model = self._mapping(source)
        except (FilesError, PlainYamlError) as error:
            return Draft(source=source, name=self._name(path, ""), problem=f"Its {MODEL_FILE} cannot be read: {error}")
        flavors = model.get("flavors")
        names = [str(name)[:60] for name in flavors][:20] if isinstance(flavors, dict) else []
        run_id = str(model.get("run_id") or "")[:64]
        found = Draft(
            source=source,
            name=self._name(path, str(model.get("artifact_path") or "")),
            flavors=names,
            run=self._run(path, run_id),
            created_at=_time(model.get("utc_time_created")),
        )
        if SERVED_FLAVOR not in names:
            return replace(found, problem=f"It has no flavor {SERVED_FLAVOR}, by which MLflow serves models.")
        return replace(
            found,
            notes=self._packages(path),
            revision={
                "variant": VARIANT,
                "model_path": MODEL_PATH,
                "environment": {"MODEL_PATH": posixpath.join(MODEL_PATH, path)} if path else {},
                "health": {},
            },
        )

    def _name(self, path: str, logged: str) -> str:
        """Return what its run calls a model, else its directory."""
        above, own = posixpath.split(path)
        if own == "artifacts":
            key = posixpath.basename(above)
            return self._names(path).models.get(key) or self._named(f"{above}/meta.yaml", "name") or key
        return own or posixpath.basename(logged)

    def _run(self, path: str, run_id: str) -> str:
        """Return the name of the run, else its id."""
        experiment = posixpath.dirname(posixpath.dirname(posixpath.dirname(path)))
        if not run_id or not experiment:
            return run_id
        tracked = self._names(path).runs.get(run_id)
        return tracked or self._named(f"{experiment}/{run_id}/meta.yaml", "run_name") or run_id

    def _names(self, path: str) -> TrackedNames:
        """Return the names in the database beside the tree in which the path is."""
        parts = path.split("/")
        tree = max((index for index, part in enumerate(parts) if part in TREES), default=0)
        place = posixpath.join(*parts[:tree], mlflow_database.FILE)
        if place not in self._tracked:
            if len(self._tracked) == MAX_DATABASES:
                self.is_complete = False
                return TrackedNames()
            self._tracked[place] = mlflow_database.names_in(self._files, place)
        return self._tracked[place]

    def _named(self, path: str, key: str) -> str:
        try:
            return str(self._mapping(path).get(key) or "")[:255]
        except (FilesError, PlainYamlError):
            return ""

    def _mapping(self, path: str) -> dict[str, object]:
        text = self._files.read_text(path).text
        self._unread -= len(text)
        if self._unread < 0:
            self.is_complete = False
            raise PlainYamlError(1, "There are too many models; choose a directory that has fewer.")
        plain = document_of(text).value
        return plain if isinstance(plain, dict) else {}

    def _packages(self, path: str) -> list[str]:
        """Return which packages its environment must have, as nothing is installed for it."""
        try:
            text = self._files.read_text(posixpath.join(path, "requirements.txt")).text
        except FilesError:
            return []
        lines = [line.strip()[:60] for line in text.splitlines() if line.strip() and line.strip()[0] not in "#-"]
        shown = ", ".join(lines[:_MAX_SHOWN_PACKAGES]) + (", …" if len(lines) > _MAX_SHOWN_PACKAGES else "")
        return [f"Its packages are not installed; the environment must have them: {shown}."] if lines else []


def _has_model(entries: list[FolderEntry]) -> bool:
    return any(each.name == MODEL_FILE and each.kind == EntryKind.FILE for each in entries)


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=UTC)
    except ValueError:
        return None
