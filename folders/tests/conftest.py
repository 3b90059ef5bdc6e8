"""Fixtures of tests of folders: a storage root on this machine, a folder there, and a browser of its owner."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from accounts.models import User
from folders.models import Folder, StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from tests.browser import signed_in
from tests.factories import make_root, make_user
from tests.live import LiveServer


@pytest.fixture
def root(db: None, tmp_path: Path) -> StorageRoot:
    """The default storage root, in a directory of the test's own."""
    made = make_root(name="local", path=str(tmp_path / "root"), is_default=True)
    storage.prepare_root(made)
    return made


@pytest.fixture
def owner(root: StorageRoot) -> User:
    """A user without privileges, whose folders lie on the root."""
    return make_user(email="ada@example.org")


@pytest.fixture
def folder(owner: User, root: StorageRoot) -> Folder:
    """A folder of the owner."""
    return services.create(owner, "mnist", root)


@pytest.fixture
def files(folder: Folder) -> Path:
    """The directory of the folder's files."""
    return Path(storage.root_directory(folder.root).files_path(folder.holder_number, folder.pk))


@pytest.fixture
def context(browser: Browser, server: LiveServer, owner: User) -> Iterator[BrowserContext]:
    """A browser's profile in which the owner is signed in."""
    with signed_in(browser, server, owner) as made:
        yield made


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """An empty page of the owner."""
    return context.new_page()
