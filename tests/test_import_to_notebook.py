"""From an address on the page of imports to a notebook in JupyterLab, with another machine's repository."""

import re
from contextlib import closing

import docker
import pytest
from playwright.sync_api import Browser, expect

from tests.execs import output_of
from tests.git_container import git_container
from tests.guide import sessions_page
from tests.platform import Platform

pytestmark = [pytest.mark.docker, pytest.mark.browser]


def test_an_address_becomes_an_open_notebook(browser: Browser, platform: Platform) -> None:
    with git_container() as address, sessions_page(browser, platform) as page:
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Import", exact=True).click()
        page.get_by_label("Address").fill(address)
        page.get_by_role("button", name="Look what is there").click()
        expect(page.get_by_text("requirements.txt")).to_be_visible()
        expect(page.get_by_text("in JupyterLab")).to_be_visible()
        page.get_by_label("Name of the new folder").fill("course")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("link", name="Go on to the launch").click()
        expect(page.locator("#review")).to_contain_text(address)
        page.get_by_role("button", name=re.compile("^(Launch|Queue)")).click()
        dialog = page.get_by_role("dialog")
        with page.context.expect_page() as opening:
            dialog.get_by_role("button", name="Open first.ipynb in JupyterLab").click()
        lab = opening.value
        lab.wait_for_url("http://jupyterlab--*.apps.localhost:*/lab/tree/course/work/first.ipynb")
        expect(lab.get_by_role("tab", name="first.ipynb")).to_be_visible()
    (row,) = platform.rows("SELECT id, state, problem, session_id FROM imports_import WHERE target = 'SESSION'")
    assert (row["state"], row["problem"]) == ("DONE", "")
    with closing(docker.from_env()) as client:
        command = "cd ~/course/work && .venv/bin/python -c 'import hello' && readlink .venv"
        code, output = output_of(client.api, f"gp-{row['session_id']}-1", command, "work")
    assert (code, output.splitlines()[0]) == (0, "hello from the wheel")
    assert "/.environments/" in output
