"""Folders with models on this machine, for tests."""

from pathlib import Path
from typing import Final

from accounts.models import User
from folders.models import Folder
from folders.sharing import folders
from folders.storage import paths as storage
from resources.models import Host
from tests.factories import make_root

DEFINITION: Final = """\
models:
  - name: digits
    model_path: /models
    service:
      start_command: [python3, -m, http.server, --directory, /models, "8000"]
      port: 8000
      health_check: {path: /health, interval: 10, max_retries: 3, max_wait_time: 2, initial_delay: 90}
      environment: {SEED: 7}
    metadata: {author: Ada}
"""
WRONG: Final = DEFINITION.replace("port: 8000", "port: 80")


def make_model_folder(owner: User, place: Path, name: str = "models", host: Host | None = None) -> tuple[Folder, Path]:
    """Return a folder of the owner's, which sessions on the host can mount, and the directory of its files."""
    root = make_root(*filter(None, [host]), name=name, path=str(place / name), is_default=False)
    storage.prepare_root(root)
    folder = folders.create(owner, name, root)
    return folder, Path(storage.root_directory(root).files_path(folder.holder_number, folder.pk))


def store_model(directory: Path, *, time: str = "2026-01-02 03:04:05.6", flavor: str = "python_function") -> Path:
    """Store the description of a model as MLflow does, and return its directory."""
    directory.mkdir(parents=True)
    lines = ["artifact_path: model", "flavors:", f"  {flavor}: {{loader_module: x}}", "  sklearn: {code: null}"]
    (directory / "MLmodel").write_text("\n".join([*lines, "run_id: abc123", f"utc_time_created: '{time}'", ""]))
    return directory
