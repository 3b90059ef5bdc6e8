"""The list of data folders, and what is done with a folder as a whole: create, rename, share, trash."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from folders.models import Folder, HostRoot, StorageRoot
from folders.sharing import folders as services
from resources.amounts.units import GIB
from sessions.models import Mount
from tests.factories import make_folder, make_host, make_policy, make_root, make_user, owner_of, run_session
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user(email="ada@example.org", policy=make_policy(storage_bytes=50 * GIB, storage_files=1000))


@pytest.fixture
def browser(owner: User) -> Client:
    return browser_of(owner)


def test_the_list_says_what_each_folder_is(browser: Client, owner: User, root: StorageRoot) -> None:
    data = make_folder(owner, name="mnist", root=root, used_bytes=3 * GIB, used_files=7)
    make_folder(owner, name=".local", root=root)
    services.share(data, make_user())
    session = run_session(owner=owner)
    Mount.objects.create(session=session, folder=data, folder_name="mnist", path="/home/work/mnist")
    page = text_of(browser, "/folders/")
    for words in (
        "sftp -P 8022 data@",
        "mnist",
        "shared with 1",
        "mounted in 1 session",
        "in every session",
        "3 of 50 GiB",
        "7 of 1,000 files",
    ):
        assert words in page
    session.mounts.update(problem="The storage is not there.")
    assert "mounted in" not in text_of(browser, "/folders/")


def test_each_tab_lists_its_folders(browser: Client, owner: User, root: StorageRoot) -> None:
    make_folder(owner, name="mine", root=root)
    make_folder(owner, name="thrown-away", root=root, trashed_at=timezone.now())
    make_folder(owner, name="gone", root=root, trashed_at=timezone.now(), deleting_at=timezone.now())
    services.share(make_folder(name="hers", root=root), owner)
    make_folder(name="of-a-stranger", root=root)
    pages = {tab: text_of(browser, f"/folders/?tab={tab}") for tab in ("mine", "shared", "trash")}
    for name, tab in (("mine", "mine"), ("thrown-away", "trash"), ("hers", "shared")):
        assert [shown for shown in pages if f">{name}<" in pages[shown]] == [tab]
    assert all("of-a-stranger" not in page and ">gone<" not in page for page in pages.values())
    assert "read only" in pages["shared"]


@pytest.mark.parametrize(
    ("tab", "words"), [("mine", "pip install"), ("shared", "ada@example.org"), ("trash", "restored")]
)
def test_empty_tabs_teach(browser: Client, root: StorageRoot, tab: str, words: str) -> None:
    assert words in text_of(browser, f"/folders/?tab={tab}")


def test_queries_of_the_list_do_not_grow(browser: Client, owner: User, root: StorageRoot) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            text_of(browser, "/folders/")
        return len(captured)

    make_folder(owner, root=root)
    few = queries()
    for _ in range(5):
        services.share(make_folder(owner, root=root), make_user())
    assert queries() == few


def test_a_folder_is_created_and_opened(browser: Client, owner: User, root: StorageRoot) -> None:
    make_root(name="lab-nfs", is_shared=True)
    assert "lab-nfs" in text_of(browser, "/folders/create/")
    response = browser.post("/folders/create/", {"name": "mnist", "root": root.pk})
    folder = Folder.objects.get(owner=owner)
    assert response.headers["Location"] == f"/folders/{folder.pk}/"
    assert "This folder is empty" in text_of(browser, response.headers["Location"])


@pytest.mark.parametrize(
    ("name", "words"), [("", "needs a name"), ("a b", "letters"), (".ssh", "reserved"), ("taken", "already")]
)
def test_a_refused_name_is_explained_at_its_field(
    browser: Client, owner: User, root: StorageRoot, name: str, words: str
) -> None:
    make_folder(owner, name="taken", root=root)
    response = browser.post("/folders/create/", {"name": name, "root": root.pk}, headers=HTMX)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert Folder.objects.count() == 1
    if name:
        assert words in text_of(browser, f"/folders/name/?name={name}")


def test_the_name_check_explains_a_dot(browser: Client) -> None:
    assert "In every session" in text_of(browser, "/folders/name/?name=.local")
    assert "/home/work/mnist" in text_of(browser, "/folders/name/?name=mnist")
    assert "field-error" not in text_of(browser, "/folders/name/?name=")


def test_where_no_session_can_have_folders_the_page_says_so(browser: Client, owner: User, root: StorageRoot) -> None:
    make_folder(owner, root=root)
    row = HostRoot.objects.create(host=make_host(name="gpu1"), root=root, problem="It has no id-mapped mounts.")
    problem = "Sessions cannot use the storage local at present: It has no id-mapped mounts."
    for path in ("/folders/", "/folders/create/"):
        assert problem in text_of(browser, path)
    HostRoot.objects.create(host=make_host(name="gpu2"), root=root, is_present=True)
    for path in ("/folders/", "/folders/create/"):
        assert row.problem not in text_of(browser, path)


def test_a_folder_is_renamed(browser: Client, owner: User, root: StorageRoot) -> None:
    folder = make_folder(owner, name="old", root=root)
    make_folder(owner, name="taken", root=root)
    refused = browser.post(f"/folders/{folder.pk}/rename/", {"name": "taken"}, headers=HTMX)
    assert (refused.status_code, "Rename old" in refused.content.decode()) == (422, True)
    assert browser.post(f"/folders/{folder.pk}/rename/", {"name": "new"}, headers=HTMX).status_code == 204
    folder.refresh_from_db()
    assert folder.name == "new"


def test_a_folder_is_shared_changed_and_withdrawn(browser: Client, owner: User, root: StorageRoot) -> None:
    folder, friend = make_folder(owner, root=root), make_user(email="bob@example.org")
    path = f"/folders/{folder.pk}/share/"
    for email, words in (
        ("nobody@example.org", "Nobody signs in"),
        ("ada@example.org", "owner"),
        ("x", "not an e-mail"),
    ):
        refused = browser.post(path, {"email": email}, headers=HTMX)
        assert (refused.status_code, words in refused.content.decode()) == (422, True)
    shared = browser.post(path, {"email": "BOB@example.org"}, headers=HTMX)
    assert (shared.status_code, "bob@example.org" in shared.content.decode()) == (200, True)
    assert folder.shares.get(user=friend).is_read_only
    browser.post(path, {"email": "bob@example.org", "can_write": "on"}, headers=HTMX)
    share = folder.shares.get(user=friend)
    assert not share.is_read_only
    assert browser.post(f"{path}{share.pk}/withdraw/").status_code == 302
    assert not folder.shares.exists()


def test_a_share_can_be_left(browser: Client, owner: User, root: StorageRoot) -> None:
    folder = make_folder(root=root)
    services.share(folder, owner)
    path = f"/folders/{folder.pk}/leave/"
    assert owner_of(folder).email in text_of(browser, path)
    assert browser.post(path).headers["Location"] == "/folders/?tab=shared"
    assert not folder.shares.exists()


def test_a_folder_goes_to_the_trash_and_comes_back(browser: Client, owner: User, root: StorageRoot) -> None:
    folder = services.create(owner, "mnist", root)
    browser.post(f"/folders/{folder.pk}/delete/")
    services.create(owner, "mnist", root)
    assert "in the trash" in text_of(browser, f"/folders/{folder.pk}/")
    taken = browser.post(f"/folders/{folder.pk}/restore/", {"name": "mnist"}, headers=HTMX)
    assert (taken.status_code, "already" in taken.content.decode()) == (422, True)
    browser.post(f"/folders/{folder.pk}/restore/", {"name": "mnist-2"})
    folder.refresh_from_db()
    assert (folder.name, folder.trashed_at) == ("mnist-2", None)
    browser.post(f"/folders/{folder.pk}/delete/")
    browser.post(f"/folders/{folder.pk}/delete-for-ever/")
    assert not Folder.objects.filter(pk=folder.pk).exists()


def test_a_mounted_folder_is_not_deleted(browser: Client, owner: User, root: StorageRoot) -> None:
    folder = make_folder(owner, root=root)
    session = run_session(owner=owner)
    Mount.objects.create(session=session, folder=folder, folder_name=folder.name, path="/home/work/x")
    response = browser.post(f"/folders/{folder.pk}/delete/", headers=HTMX)
    assert session.name in response.content.decode()
    folder.refresh_from_db()
    assert folder.trashed_at is None


VERBS = ("", "file/", "trash/", "edit/", "rename/", "share/", "leave/", "delete/", "restore/", "delete-for-ever/")
ENTRY_VERBS = ("new-directory/", "new-file/", "rename-entry/", "move-entries/", "trash-entries/", "restore-entries/")


@pytest.mark.parametrize("verb", [*VERBS, *ENTRY_VERBS, "delete-entries/", "empty-trash/"])
def test_a_stranger_finds_nothing(browser: Client, root: StorageRoot, verb: str) -> None:
    folder = make_folder(root=root)
    strangers = (browser, browser_of(make_user(is_superuser=True)))
    for each in strangers:
        for ask in (each.get, each.post):
            assert ask(f"/folders/{folder.pk}/{verb}").status_code in (404, 405)
    assert Client().get(f"/folders/{folder.pk}/{verb}").status_code in (302, 405)
    folder.refresh_from_db()
    assert folder.trashed_at is None


@pytest.mark.parametrize(
    "verb", ["edit/", *ENTRY_VERBS, "delete-entries/", "empty-trash/", "rename/", "share/", "delete/"]
)
def test_a_reader_changes_nothing(browser: Client, owner: User, root: StorageRoot, verb: str) -> None:
    folder = make_folder(root=root, created_at=timezone.now() - timedelta(days=1))
    services.share(folder, owner, is_read_only=True)
    assert browser.post(f"/folders/{folder.pk}/{verb}", {"name": "x", "path": "a"}).status_code == 404
    assert "read only" in text_of(browser, f"/folders/{folder.pk}/")


def test_the_list_warns_of_exceeded_quotas_and_missing_storage(browser: Client, owner: User, root: StorageRoot) -> None:
    folder = make_folder(owner, name="mnist", root=root)
    assert "alert-warning" not in browser.get("/folders/").content.decode()
    Folder.objects.filter(pk=folder.pk).update(used_bytes=51 * GIB)
    assert f"Your folders on {root} take more than you may store there." in text_of(browser, "/folders/")
    make_folder(owner, name="away", root=make_root(name="lab"))
    make_root(make_host(name="gpu1"), name="other").on_hosts.update(is_present=False, problem="It is away.")
    page = text_of(browser, "/folders/")
    assert "No host has the storage root lab at present." in page
    assert "Storage root other is on no host" not in page
    User.objects.filter(pk=owner.pk).update(is_superuser=True)
    assert "Storage root other is on no host: It is away." in text_of(browser, "/folders/")
