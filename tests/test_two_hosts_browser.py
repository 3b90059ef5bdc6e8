"""A person whose session is on a far machine: their browser reaches the web process alone, and shows no difference."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Browser, Page, expect

from resources.amounts.units import GIB
from resources.images.catalogue import catalog
from resources.images.registration import register_entry
from tests.app_windows import launched, save_a_notebook
from tests.browser import signed_in
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.two_hosts import TwoHosts, two_hosts

pytestmark = [
    pytest.mark.long(minutes=2),
    pytest.mark.docker,
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    """Both hosts, with a session of Python on each."""
    ensure_python_image()
    entries = catalog.load(settings.BASE_DIR / "images" / "catalog.toml")
    register_entry(next(entry for entry in entries if entry.reference == PYTHON_IMAGE))
    with two_hosts(tmp_path, PYTHON_IMAGE, memory=GIB) as running:
        yield running


@pytest.fixture
def page(browser: Browser, hosts: TwoHosts) -> Iterator[Page]:
    """The list of sessions, as the owner of the session far away sees it."""
    with signed_in(browser, hosts.web, hosts.far.owner, viewport={"width": 1440, "height": 900}) as context:
        sessions = context.new_page()
        sessions.goto("/sessions/")
        yield sessions


def test_a_remote_notebook_runs_and_is_saved(hosts: TwoHosts, page: Page) -> None:
    name = hosts.far.name
    terminal = launched(page, name, "Terminal")
    expect(terminal.locator(".xterm-rows")).to_contain_text("$")
    lab = launched(page, name, "JupyterLab")
    save_a_notebook(lab, terminal)
    assert hosts.machine.has_container(hosts.far.container_id)
    assert hosts.gateway.open_connections() > 1, "the terminal's and the kernel's"
