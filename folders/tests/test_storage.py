"""The default storage root, and how rows find their directories."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from folders.errors import StorageUnavailableError
from folders.files.errors import EntryKindError
from folders.files.roots import MARKER
from folders.files.walk import in_rounds
from folders.models import StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from folders.storage import roots
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


def owners(start: Path) -> set[tuple[int, int]]:
    """Return whose all is below a directory."""
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in start.rglob("*")}


def test_what_root_makes_belongs_to_the_roots_own_user(root: StorageRoot) -> None:
    os.chown(Path(root.path, MARKER), 1234, 1235)
    folder = services.create(make_user(), "data")
    with storage.files_of(folder) as files:
        files.mkdir("a/b", parents=True)
        files.write_text("a/text", "x", if_match=None)
        os.close(files.direct.open("direct", os.O_WRONLY | os.O_CREAT))
        files.trash.restore(files.trash.put("a/text", datetime(2026, 1, 1, tzinfo=UTC)).id, "new/text")
    files_path = Path(storage.root_directory(root).files_path(folder.holder_number, folder.pk))
    assert owners(files_path) == {(1234, 1235)}
    services.trash(folder)
    services.delete_forever(folder)
    storage.root_directory(root).expunge(folder.holder_number, folder.pk)
    assert owners(
        Path(
            root.path,
            str(
                folder.holder_number,
            ),
        )
    ) <= {(1234, 1235), (0, 0)}
    assert Path(root.path, str(folder.holder_number), ".expunged").stat().st_uid == 1234


def test_another_users_root_is_refused_in_words(root: StorageRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = services.create(make_user(), "data")
    os.chown(Path(root.path, MARKER), 1234, 1234)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    roots._probes.clear()
    with pytest.raises(StorageUnavailableError, match="belongs to user id 1234, and the platform runs as user id 4321"):
        storage.files_of(folder)


def test_what_cannot_be_removed_holds_up_no_other_owner(root: StorageRoot) -> None:
    directory = storage.root_directory(root)
    for owner in (1, 2, 3):
        directory.create(owner, "a" * 16)
        directory.expunge(owner, "a" * 16)
    spoilt = Path(root.path, "1", ".expunged")
    spoilt.rename(spoilt.with_name("away"))
    spoilt.touch()
    assert not directory.purge(1)
    with pytest.raises(EntryKindError):
        in_rounds(lambda: directory.purge(1000))
    assert [os.listdir(Path(root.path, owner, ".expunged")) for owner in ("2", "3")] == [[], []]
