"""Names of models and runs in the SQLite database that MLflow keeps beside `mlruns`; its files have ids alone.

The database is a stranger's: it is read into memory up to a size, and a query of it ends after so many steps.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from folders.files.errors import FilesError
from folders.files.folder_files import FolderFiles

FILE: Final = "mlflow.db"
MAX_BYTES: Final = 16 * 2**20
MAX_ROWS: Final = 5000
MAX_STEPS: Final = 300_000  # of SQLite's machine, for all queries
MAX_VALUE_BYTES: Final = 2**16
_STEPS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class TrackedNames:
    """Names by id; empty where they are not known."""

    models: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)


def names_in(files: FolderFiles, path: str) -> TrackedNames:
    """Return the names in the database at this path; none if there is none, or it cannot be read."""
    try:
        with os.fdopen(files.open_file(path), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FilesError:
        return TrackedNames()
    if not 0 < len(content) <= MAX_BYTES:
        return TrackedNames()
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            return _names_of(database)
    except (sqlite3.Error, UnicodeDecodeError):
        return TrackedNames()


def _names_of(database: sqlite3.Connection) -> TrackedNames:
    left = iter(range(MAX_STEPS // _STEPS_AT_ONCE))
    database.set_progress_handler(lambda: next(left, None) is None, _STEPS_AT_ONCE)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    database.execute("PRAGMA trusted_schema = OFF")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage")}
    if not {"logged_models", "runs"} <= tables:  # views and virtual tables, which compute, have no page
        return TrackedNames()
    models, runs = (
        {str(key): str(name)[:255] for key, name in database.execute(f"{query} LIMIT {MAX_ROWS}") if name}
        for query in ("SELECT model_id, name FROM logged_models", "SELECT run_uuid, name FROM runs")
    )
    return TrackedNames(models, runs)
