"""The default storage root, and how rows find their directories."""

import os
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from folders.errors import StorageUnavailableError
from folders.files import layout
from folders.files.roots import MARKER
from folders.models import StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from tests.factories import make_folder, make_root, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def directory(settings: Settings, tmp_path: Path) -> Path:
    settings.COMPUTE_STORAGE_DIR = str(tmp_path / "some" / "where")
    return Path(settings.COMPUTE_STORAGE_DIR)


def test_the_first_start_registers_the_default_root(directory: Path) -> None:
    root = storage.register_default_root()
    assert root is not None
    assert (root.path, root.is_default) == (str(directory), True)
    assert (directory / MARKER).read_text().strip() == str(root.key)
    assert storage.register_default_root() == root


def test_an_administrators_roots_are_left_alone(directory: Path) -> None:
    make_root()
    assert storage.register_default_root() is None
    assert not directory.exists()


def test_a_root_that_lost_its_marker_is_not_filled(directory: Path) -> None:
    storage.register_default_root()
    (directory / MARKER).unlink()
    (directory / "something").touch()
    with pytest.raises(StorageUnavailableError, match="is not empty"):
        storage.register_default_root()


def test_a_path_with_spaces_is_refused_in_words(settings: Settings, tmp_path: Path) -> None:
    settings.COMPUTE_STORAGE_DIR = str(tmp_path / "a b")
    with pytest.raises(StorageUnavailableError, match="COMPUTE_STORAGE_DIR"):
        storage.register_default_root()
    assert not StorageRoot.objects.exists()


def test_directories_above_the_files_are_private(root: StorageRoot) -> None:
    folder = services.create(make_user(), "data")
    files = Path(storage.root_directory(root).files_path(folder.holder_number, folder.pk))
    assert (files.stat().st_uid, files.stat().st_mode & 0o777) == (1000, 0o755)
    for above in (files.parent, files.parent.parent, Path(root.path)):
        assert above.stat().st_mode & 0o077 == 0


def test_a_folder_made_elsewhere_gets_its_directory(root: StorageRoot) -> None:
    with storage.files_of(make_folder(root=root)) as files:
        assert files.list().total == 0


def test_folders_are_off_for_any_other_user(root: StorageRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(root=root)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "runs as user id 12345" in layout.platform_problem()
    with pytest.raises(StorageUnavailableError, match="Data folders are off"):
        storage.files_of(folder)
    assert services.create(make_user(), "data").pk
