"""Operations on folders: what they refuse, what they leave behind, and two at a time."""

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import User
from folders.errors import (
    FolderAccessError,
    FolderError,
    FolderInUseError,
    FolderRejectedError,
    FolderStateError,
    StorageQuotaError,
)
from folders.files.errors import StorageAccessError
from folders.files.layout import RootDirectory
from folders.models import Folder, StorageRoot
from folders.quotas import rules as quota
from folders.sharing import folders as services
from folders.sharing.access import Access, access, require, require_manager, require_owner
from folders.storage import paths as storage
from sessions.lifecycle import Reason, Status
from sessions.models import Mount
from tests.factories import make_folder, make_policy, make_root, make_session, make_user, owner_of


@pytest.fixture
def folder(owner: User) -> Folder:
    return services.create(owner, "data")


def directory_of(folder: Folder) -> Path:
    return Path(storage.root_directory(folder.root).folder_path(folder.holder_number, folder.pk))


def mount(folder: Folder, **fields: object) -> Mount:
    session = make_session(owner=folder.owner, name="training")
    return Mount.objects.create(
        session=session, folder=folder, folder_name=folder.name, path="/home/work/data", **fields
    )


def test_a_folder_that_sessions_mount_stays(folder: Folder) -> None:
    session = mount(folder).session
    with pytest.raises(FolderInUseError, match="training"):
        services.trash(folder)
    services.rename(folder, "other")
    session.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    services.trash(folder)
    assert Folder.objects.trashed().get() == folder


def test_a_mount_that_failed_holds_no_folder(folder: Folder) -> None:
    mount(folder, problem="Its host lacks the storage.")
    services.trash(folder)
    assert folder.trashed_at


def test_deleting_forever_leaves_nothing(folder: Folder) -> None:
    directory = directory_of(folder)
    (directory / "files" / "a").mkdir()
    (directory / "files" / "a" / "own").write_text("mine")
    services.share(folder, make_user())
    old = mount(folder)
    old.session.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    services.trash(folder)
    services.delete_forever(folder)
    assert not Folder.objects.exists()
    assert not directory.exists()
    assert list((directory.parent / ".expunged").iterdir()) == []
    old.refresh_from_db()
    assert (old.folder, old.folder_name) == (None, "data")


def test_a_deletion_cut_off_goes_on(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    services.trash(folder)
    with monkeypatch.context() as patch:
        patch.setattr(RootDirectory, "purge", die)
        patch.setattr(RootDirectory, "expunge", die)
        with pytest.raises(KeyboardInterrupt):
            services.delete_forever(folder)
    assert list(Folder.objects.visible_to(owner_of(folder))) == []
    assert access(owner_of(folder), folder) == Access.NONE
    for operation in (services.trash, services.restore, services.delete_forever):
        with pytest.raises(FolderStateError, match="was deleted"):
            operation(folder)
    storage.root_directory(folder.root).expunge(folder.holder_number, folder.pk)  # and cut off again
    assert services.purge(Folder.objects.deleting().get())
    assert not Folder.objects.exists()


def test_a_deletion_waits_for_its_root(owner: User) -> None:
    folder = make_folder(owner, root=make_root(name="away"), trashed_at=timezone.now())
    services.delete_forever(folder)
    assert not services.purge(Folder.objects.deleting().get())
    assert services.create(owner, folder.name).pk != folder.pk


def test_a_failing_removal_is_reported_and_repeated(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise StorageAccessError("Input/output error")

    services.trash(folder)
    with monkeypatch.context() as patch:
        patch.setattr(RootDirectory, "expunge", fail)
        services.delete_forever(folder)
    assert services.purge(Folder.objects.deleting().get())


def test_a_folder_on_a_missing_root_is_still_managed(owner: User) -> None:
    folder = services.create(owner, "far", make_root(name="away"))
    services.rename(folder, "farther")
    services.trash(folder)
    services.restore(folder)
    assert Folder.objects.live().get() == folder


def test_names_beginning_with_a_dot_are_mounted_unasked(owner: User) -> None:
    folder = services.create(owner, ".local")
    assert folder.is_automounted
    services.rename(folder, "local")
    assert not folder.is_automounted


def test_a_restored_folder_has_its_shares_again(folder: Folder) -> None:
    guest = services.share(folder, make_user(), is_read_only=False).user
    services.trash(folder)
    assert access(guest, folder) == Access.NONE
    services.restore(folder)
    assert access(guest, folder) == Access.WRITE


def test_rights_by_role(folder: Folder) -> None:
    reader = services.share(folder, make_user()).user
    gone = services.share(folder, make_user()).user
    gone.is_active = False
    rights = {
        owner_of(folder): Access.WRITE,
        reader: Access.READ,
        gone: Access.NONE,
        make_user(): Access.NONE,
        make_user(is_superuser=True): Access.NONE,
    }
    annotated = {user: Folder.objects.with_rights_of(user).get(pk=folder.pk) for user in rights}
    assert {user: access(user, folder) for user in rights} == rights
    assert {user: access(user, annotated[user]) for user in rights} == rights


def test_shares_are_limited_in_number(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_SHARES", 1)
    share = services.share(folder, make_user())
    with pytest.raises(FolderRejectedError, match="at most 1"):
        services.share(folder, make_user())
    assert services.share(folder, share.user, is_read_only=False).pk == share.pk
    services.withdraw(share)
    services.share(folder, make_user())


def test_quota_counts_folders_trash_and_uploads_on_a_root(root: StorageRoot) -> None:
    owner = make_user(policy=make_policy(storage_bytes=1000, storage_files=10))
    folder = make_folder(owner, root=root, used_bytes=100, used_files=3)
    make_folder(owner, root=root, used_bytes=200, used_files=1, trashed_at=timezone.now())
    make_folder(owner, root=make_root(), used_bytes=5000)
    make_folder(root=root, used_bytes=5000)
    later = timezone.now() + timedelta(days=1)
    folder.uploads.create(user=make_user(), path="a", length=300, expires_at=later, id=uuid.uuid4())
    use = quota.storage_use(owner, root)
    assert (use.used_bytes, use.left_bytes, use.used_files, use.left_files) == (600, 400, 5, 5)
    quota.check_room(folder, add_bytes=400, add_files=5)
    with pytest.raises(StorageQuotaError, match="of which 400 B are left"):
        quota.check_room(folder, add_bytes=401)
    with pytest.raises(StorageQuotaError, match="of which 5 are left"):
        quota.check_room(folder, add_files=6)
    quota.record_growth(folder, add_bytes=900)
    assert quota.storage_use(owner, root).is_exceeded
    quota.record_growth(folder, add_bytes=-5000, add_files=-50)
    assert quota.storage_use(owner, root).used_bytes == 500


def test_a_policy_without_limits_lets_everything_in(folder: Folder) -> None:
    quota.check_room(folder, add_bytes=2**60, add_files=2**40)
    assert quota.storage_use(owner_of(folder), folder.root).left_bytes is None


def at_once(*operations: Callable[[], object]) -> list[str]:
    """Call the operations in threads of their own and return the names of the errors that some raised."""
    barrier, errors = threading.Barrier(len(operations)), []

    def run(operation: Callable[[], object]) -> None:
        barrier.wait()
        try:
            operation()
        except FolderError as error:
            errors.append(type(error).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(operation,)) for operation in operations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.django_db(transaction=True)
def test_two_creations_at_once_keep_name_and_limit(root: StorageRoot) -> None:
    owner = make_user(policy=make_policy(max_folders=2))
    assert at_once(*[lambda: services.create(owner, "data")] * 4) == ["FolderRejectedError"] * 3
    names = iter("abcd")
    assert len(at_once(*[lambda: services.create(owner, next(names))] * 4)) == 3
    assert Folder.objects.filter(owner=owner).count() == 2


@pytest.mark.django_db(transaction=True)
def test_deleting_and_restoring_at_once_is_one_of_both(root: StorageRoot) -> None:
    folder = services.create(make_user(), "data")
    services.trash(folder)
    again, once_more = Folder.objects.get(), Folder.objects.get()
    errors = at_once(lambda: services.restore(again), lambda: services.delete_forever(once_more))
    assert errors == ["FolderStateError"]
    assert Folder.objects.live().count() == int(directory_of(folder).exists())


def test_strangers_rights_are_explained_in_words(folder: Folder) -> None:

    reader = services.share(folder, make_user()).user
    with pytest.raises(FolderAccessError, match="read-only"):
        require(reader, folder, Access.WRITE)
    for check in (require_owner, require_manager):
        with pytest.raises(FolderAccessError, match="Only the owner"):
            check(reader, folder)
    require_manager(make_user(is_superuser=True), folder)
