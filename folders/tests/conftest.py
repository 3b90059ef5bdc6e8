"""Fixtures of tests of folders: a storage root on this machine."""

from pathlib import Path

import pytest

from folders.models import StorageRoot
from folders.storage import paths as storage
from tests.factories import make_root


@pytest.fixture
def root(db: None, tmp_path: Path) -> StorageRoot:
    """The default storage root, in a directory of the test's own."""
    made = make_root(name="local", path=str(tmp_path / "root"), is_default=True)
    storage.prepare_root(made)
    return made
