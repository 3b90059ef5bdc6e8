"""A job script from a file to a session that waits, in a real browser, on a small screen."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from sessions.models import Session
from specs.tests.worlds import make_owner
from tests.browser import signed_in
from tests.live import LiveServer
from tests.wizard import launch_without_folder

SCRIPT = "#!/bin/bash\n#SBATCH --job-name=train --mem=4G --output=out.txt\n#GP --fgpu 0.5\necho hi\n"
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_a_script_opens_in_the_wizard(browser: Browser, server: LiveServer, tmp_path: Path) -> None:
    owner = make_owner(tmp_path)
    with signed_in(browser, server, owner, viewport={"width": 390, "height": 900}) as context:
        page = context.new_page()
        page.goto("/sessions/launch/")
        page.get_by_role("link", name="From a file").click()
        page.get_by_label("or paste its text").fill(SCRIPT.replace("4G", "lots"))
        page.get_by_role("button", name="Check").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("Line 2")
        launch(page, owner)


def launch(page: Page, owner: User) -> None:
    """Correct what is wrong, see what was translated, and launch by the wizard."""
    page.get_by_label("or paste its text").fill(SCRIPT)
    page.get_by_label("Image, where the file names none").fill("pytorch")
    page.get_by_role("button", name="Check").press("Enter")
    expect(page.get_by_role("row", name="session train")).to_contain_text("0.5 fGPU")
    expect(page.get_by_role("row", name="--output=out.txt")).to_contain_text("left out")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Open in the wizard").press("Enter")
    expect(page.locator("#review")).to_contain_text("echo hi")
    launch_without_folder(page)
    expect(page.get_by_text("Launched train.")).to_be_visible()
    session = Session.objects.get(owner=owner)
    assert (session.name, session.fgpu, session.memory) == ("train", 500, 4 * 2**30)
