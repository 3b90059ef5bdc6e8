"""Directories of folders without a row are listed, adopted or removed by a command."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from accounts.models import AuditEntry, User
from folders.models import Folder, StorageRoot
from folders.sharing import folders
from folders.storage import paths as storage
from tests.factories import make_policy, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(max_folders=2))


@pytest.fixture
def root(tmp_path: Path) -> StorageRoot:
    root = StorageRoot.objects.create(name="main", path=str(tmp_path / "main"), is_default=True)
    storage.prepare_root(root)
    return root


@pytest.fixture
def orphan(root: StorageRoot) -> str:
    """The id of a folder whose row and whose owner a restore has taken away; it has a file."""
    folder = folders.create(make_user(), "lost")
    with storage.files_of(folder) as files:
        files.write_text("kept.txt", "1", if_match=None)
    Folder.objects.all().delete()
    return folder.pk


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("storageroots", *arguments, stdout=output)
    return output.getvalue()


def test_directories_without_a_row_are_listed(orphan: str, owner: User) -> None:
    folders.create(owner, "known")
    text = said("orphans")
    assert orphan in text
    assert "1 directories that no folder belongs to" in text


def test_one_is_adopted_with_its_files(orphan: str, owner: User, root: StorageRoot) -> None:
    with pytest.raises(CommandError, match="There is no nobody"):
        said("adopt", orphan, "--owner", "nobody@example.org", "--name", "found")
    folders.create(owner, "taken")
    with pytest.raises(CommandError, match="taken already"):
        said("adopt", orphan, "--owner", owner.email, "--name", "taken")
    said("adopt", orphan, "--owner", owner.email, "--name", "found")
    folder = Folder.objects.get(pk=orphan)
    assert (folder.owner, folder.name, folder.root) == (owner, "found", root)
    with storage.files_of(folder) as files:
        assert files.read_text("kept.txt").text == "1"
    assert AuditEntry.objects.filter(action="adopt folder").exists()
    with pytest.raises(CommandError, match="There is no directory"):
        said("adopt", orphan, "--owner", owner.email, "--name", "twice")


def test_one_is_removed_with_its_files(orphan: str, root: StorageRoot) -> None:
    said("remove", orphan)
    assert "0 directories" in said("orphans")
    assert storage.root_directory(root).purge(100)
    assert not list(Path(root.path).rglob("kept.txt"))
